"""Every case that the campaign once found is tried again."""

import json

import pytest

from campaign.attack import all_attacks
from campaign.runner import FOUND, replay_all

pytestmark = pytest.mark.plain

FILES = {file: json.loads(file.read_text()) for file in sorted(FOUND.glob("*.json"))}


@pytest.mark.parametrize("name", sorted({content["attack"] for content in FILES.values()}))
def test_found_once_and_mended(name):
    """All cases of an attack together: some attacks take seconds to prepare."""
    attack = all_attacks()[name]
    if reason := attack.possible():
        pytest.skip(reason)
    absent = attack.left_out()
    cases = {file.stem: found["case"] for file, found in FILES.items() if found["attack"] == name}
    cases = {
        stem: case
        for stem, case in cases.items()
        if not {case.get("seed_file"), case.get("operation")} & absent.keys()
    }
    if not cases:
        pytest.skip(f"left out here: {absent}")
    outcomes = replay_all(attack, list(cases.values()))
    bad = {c: o.said for c, o in zip(cases, outcomes, strict=True) if not o.verdict.good}
    assert not bad
