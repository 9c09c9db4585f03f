"""Numbers as people read them."""

import pytest
from javascript import call

MODULE = "shell/numbers.js"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(-0.04, 1, "0.0"), (-0.0, 1, "0.0"), (-0.06, 1, "-0.1"), (1.25, 2, "1.25")],
)
def test_nothing_has_no_sign(value, digits, text):
    assert call(MODULE, "m.fixed(value, digits)", value=value, digits=digits) == text


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 sensor"), (0, "0 sensors"), (2040, "2,040 sensors")]
)
def test_one_of_a_thing_is_singular(count, text):
    assert call(MODULE, "m.counted(count, 'sensor')", count=count) == text
