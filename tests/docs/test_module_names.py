"""Files and modules that pages name are there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_THEIR_DAY = {"log.md", "results.md", "old-names.md"}
"""Pages that name files as they were."""
PAGES = [p for p in sorted((ROOT / "docs").glob("*.md")) if p.name not in OF_THEIR_DAY]
FILE = re.compile(r"`([\w./]*/\w+\.py)`")
MODULE = re.compile(r"`(ipot(?:\.\w+)+)")


def is_there(name):
    """True if a dotted name is a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names(page):
    named = set(FILE.findall(page.read_text(encoding="utf-8")))
    missing = [n for n in named if not (ROOT / n).exists() and not (ROOT / "ipot" / n).exists()]
    assert not missing


def test_old_names_lead_to_names_of_today():
    rows = [line.split("|") for line in (ROOT / "docs/old-names.md").read_text().splitlines()]
    now = {name for row in rows if len(row) == 4 for name in MODULE.findall(row[2])}
    assert len(now) > 30
    assert sorted(name for name in now if not is_there(name)) == []
