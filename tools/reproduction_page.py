"""Write the blocks of docs/reproduction.md from the ledger, or check that page and ledger agree.

    python tools/reproduction_page.py             # write them
    python tools/reproduction_page.py --check     # fail where the page has others

A block stands between `<!-- block: NAME -->` and `<!-- end of NAME -->`; its name is an item of
`ipot reproduce`, or `settings`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ipot.reproduce import plan, records, settings, tables  # noqa: E402
from ipot.reproduce.items import CELLS, ITEMS  # noqa: E402
from ipot.reproduce.jobs import Way  # noqa: E402

LEDGER, PAGE = ROOT / "results" / "reproduction.json", ROOT / "docs" / "reproduction.md"
BLOCK = re.compile(r"(<!-- block: (\S+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def written(page: str, known: Sequence[records.Record]) -> str:
    """The page with the blocks that these records give; every item must have one."""
    results = plan.results(CELLS, known, plan.Data(), Way())
    contents = {item: tables.markdown(item, results) for item in ITEMS}
    contents["settings"] = settings.markdown()
    found = [match[1] for match in BLOCK.findall(page)]
    if sorted(found) != sorted(contents):
        odd = ", ".join(sorted(set(found) ^ set(contents))) or "one of them twice"
        raise SystemExit(f"the page must have one block for every item; look at {odd}")
    return BLOCK.sub(lambda m: f"{m[1]}\n{contents[m[2]]}\n\n{m[3]}", page)


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--page", type=Path, default=PAGE)
    flags = parser.parse_args()
    page = flags.page.read_text(encoding="utf-8")
    new = written(page, records.read(flags.ledger))
    if not flags.check:
        flags.page.write_text(new, encoding="utf-8")
    elif new != page:
        print(f"{flags.page} and {flags.ledger} disagree: run python tools/reproduction_page.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
