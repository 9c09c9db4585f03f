"""Every bar of colours has a few round numbers at their places, and its unit."""

import itertools

import pytest
from javascript import call

RANGES = (
    *((0, 0.0172), (3, 12), (-4, 4), (-2, 32), (0, 1), (-1.7, 1.7), (0.31, 0.78), (0, 7.7e-6)),
    *((-2.3e7, 1.1e7), (100.2, 100.9), (1e9 + 3, 1e9 + 5.5), (-5e-5, 5e-5), (99999, 100001)),
    *((-1e6 - 0.02, -1e6 + 0.01), (0, 1e5), (1e-3, 2e-3), (0, 1e300), (0, 1e-300)),
)
SHOWN = """
Array.from(document.querySelectorAll(".bar:not([hidden])"), (bar) => {
  const whole = bar.getBoundingClientRect();
  const stripe = bar.querySelector(".stripe").getBoundingClientRect();
  return {
    unit: bar.querySelector(".unit").textContent,
    width: whole.width,
    stripe: [stripe.left, stripe.right],
    ticks: Array.from(bar.querySelectorAll(".tick"), (tick) => {
      const { left, right } = tick.getBoundingClientRect();
      const share = Number.parseFloat(tick.style.left) / 100;
      return { text: tick.textContent, value: Number(tick.dataset.value), left, right, share };
    }),
  };
}).filter(({ width }) => width)
"""


@pytest.mark.parametrize("few", [False, True])
def test_three_to_five_round_numbers(few):
    found = call(
        "shell/numbers.js",
        "ranges.map(([low, high]) => m.ticksOf(low, high, { few }))",
        ranges=RANGES,
        few=few,
    )
    for (low, high), ticks in zip(RANGES, found, strict=True):
        values, texts = ticks["values"], ticks["texts"]
        assert 3 <= len(values) <= 5, (low, high, values)
        assert low - 1e-6 * (high - low) <= values[0], (low, high)
        assert values[-1] <= high + 1e-6 * (high - low), (low, high)
        assert len(set(texts)) == len(texts), texts
        assert max(map(len, texts)) <= 7, texts
        step = values[1] - values[0]
        for a, b in itertools.pairwise(values):
            assert b - a == pytest.approx(step, rel=1e-5, abs=1e-9 * abs(high))
        mantissa = f"{step:.1e}".partition("e")[0]
        assert mantissa in ("1.0", "2.0", "2.5", "5.0"), (low, high, values)


@pytest.mark.parametrize(
    ("low", "high", "texts", "common"),
    [
        (-2, 32, ["0", "10", "20", "30"], ""),
        (0, 5e-6, ["0", "2", "4"], "× 10⁻⁶"),
        (-2e6, 2e6, ["−2", "−1", "0", "1", "2"], "× 10⁶"),
        (1e9, 1e9 + 4, ["0", "1", "2", "3", "4"], "+ 1000000000"),
    ],
)
def test_what_numbers_have_in_common_is_said_once(low, high, texts, common):
    found = call("shell/numbers.js", "m.ticksOf(low, high)", low=low, high=high)
    assert found["common"] == common
    assert found["texts"] == texts


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    ("problem", "unit"),
    [("darcy", ""), ("elasticity", "Pa"), ("plasticity", "mm"), ("sst", "K"), ("airfoil", "")],
)
def test_the_bars_of_a_scene(visit, problem, unit, width, theme):
    page = visit(problem, viewport={"width": width, "height": 844}, color_scheme=theme)
    bars = page.read(SHOWN)
    assert bars
    for bar in bars:
        assert bar["unit"] == unit
        ticks = bar["ticks"]
        assert 3 <= len(ticks) <= 5
        for one, other in itertools.pairwise(ticks):
            assert one["right"] < other["left"], "numbers overlap"
        assert ticks[-1]["right"] <= bar["stripe"][1] + 12
        # The places are linear in the numbers, and the numbers are those of the text.
        (first, *_, last) = ticks
        for tick in ticks:
            part = (tick["value"] - first["value"]) / (last["value"] - first["value"])
            along = (tick["share"] - first["share"]) / (last["share"] - first["share"])
            assert along == pytest.approx(part, abs=1e-4)
            assert float(tick["text"].replace("−", "-")) == tick["value"]
    if width < 500:
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_they_can_be_read(visit):
    """The numbers stand out from the paper in both themes, by the contrast of WCAG (4.5)."""
    for theme in ("light", "dark"):
        page = visit("darcy", color_scheme=theme)
        ink, paper = page.read(
            "[getComputedStyle(document.querySelector('.bar .tick')).color,"
            " getComputedStyle(document.body).backgroundColor]"
            ".map((text) => text.match(/[0-9.]+/g).map(Number))"
        )
        light, dark = sorted((_luminance(ink), _luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 4.5, theme


def _luminance(colour):
    parts = [c / 255 for c in colour[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
