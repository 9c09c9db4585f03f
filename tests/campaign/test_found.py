"""Every case that the campaign once found is tried again."""

import json

import pytest

from campaign.attack import all_attacks
from campaign.runner import FOUND, replay

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("file", sorted(FOUND.glob("*.json")), ids=lambda file: file.stem)
def test_found_once_and_mended(file):
    content = json.loads(file.read_text())
    attack = all_attacks()[content["attack"]]
    if reason := attack.possible():
        pytest.skip(reason)
    absent = attack.left_out()
    for name in (content["case"].get("seed_file"), content["case"].get("operation")):
        if name in absent:
            pytest.skip(absent[name])
    outcome = replay(attack, content["case"])
    assert outcome.verdict.good, outcome.said
