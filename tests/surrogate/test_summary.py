"""What is said of a fitted model, whatever is known of it."""

import pytest

from ipot.surrogate.summary import course, summary

SCORES = {
    "validation": 0.02,
    "held_out": 0.031,
    "baselines": {"linear": 0.05, "mean": 0.5},
    "per_channel": {"u": 0.01, "p": 0.04},
    "baselines_per_channel": {"linear": {"u": 0.02, "p": 0.06}, "mean": {"u": 0.4, "p": 0.5}},
}
ABOUT = {"samples": {"validation": 4, "held out": 12}}


def test_errors_stand_beside_those_of_simple_predictors():
    lines = summary(SCORES, ABOUT)
    assert lines[0] == "relative L2 error on 12 samples held out:"
    assert [line.split()[0] for line in lines[1:4]] == ["ipot", "mean", "linear"]
    assert "simple predictor" not in " ".join(lines)


def test_several_outputs_have_a_line_each():
    lines = summary(SCORES, ABOUT)
    assert [line.split()[:1] for line in lines[-2:]] == [["u"], ["p"]]
    assert "1.00 %, 2.00 %" in lines[-2]
    one = SCORES | {"per_channel": {"u": 0.031}}
    assert "each output" not in " ".join(summary(one, ABOUT))


def test_it_says_so_where_a_simple_predictor_is_better():
    assert "(linear) is better here" in " ".join(summary(SCORES | {"held_out": 0.06}, ABOUT))


def test_weights_are_named():
    assert summary(SCORES | {"weighted": True}, ABOUT)[0].startswith("weighted relative L2")


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "on the training samples"), (1, "1 validation sample:"), (3, "samples:")],
)
def test_few_samples_have_what_there_is(count, said):
    assert said in summary({"validation": 0.1}, {"samples": {"validation": count}})[0]


def test_samples_that_chose_are_said_to_have_chosen():
    samples = {"samples": {"validation": 12}}
    said = [summary({"validation": 0.1}, a)[0] for a in (samples, samples | {"blend": "half"})]
    assert "they chose the weights, and it is a little too low" in said[0]
    assert "they chose the weights and the blend, and it is a little too low" in said[1]


def test_a_fit_that_was_stopped_before_its_scores_does_not_call_its_samples_few():
    (line,) = summary({"validation": 0.1}, ABOUT)
    assert line.endswith("4 validation samples: 10.0 %; not scored yet on the 12 held out")


@pytest.mark.parametrize("missing", [*SCORES, "about", "all"])
def test_what_is_missing_is_left_out(missing):
    scores = {} if missing == "all" else {k: v for k, v in SCORES.items() if k != missing}
    assert summary(scores, {} if missing == "about" else ABOUT)


def journal(losses, errors):
    pairs = zip(losses, errors, strict=True)
    return [{"loss": a, "validation": b, "epoch": i, "step": i} for i, (a, b) in enumerate(pairs)]


FALLS = [0.9, 0.6, 0.4, 0.3, 0.2, 0.12, 0.08, 0.05, 0.04, 0.03]


@pytest.mark.parametrize(
    ("losses", "errors", "expected"),
    [
        (FALLS, [0.9, 0.6, 0.5, 0.45, 0.44, 0.46, 0.5, 0.52, 0.55, 0.56], "overfitting"),
        (FALLS, [0.9, 0.6, 0.5, 0.45, 0.44, 0.44, 0.44, 0.44, 0.44, 0.44], "overfitting"),
        (FALLS, [x * 1.05 for x in FALLS], "undertrained"),
        ([0.5] * 10, [0.5] * 10, "level"),
        (FALLS[:2], FALLS[:2], "level"),
    ],
)
def test_overfitting_and_undertraining_are_told_apart(losses, errors, expected):
    assert course(journal(losses, errors)) == expected


def test_the_advice_fits():
    def said(held_out, how):
        return " ".join(summary(SCORES | {"held_out": held_out, "course": how}, ABOUT))

    assert "longer training does not help" in said(0.06, "overfitting")
    assert "train longer" not in said(0.06, "overfitting")
    assert "train longer" in said(0.06, "undertrained")
    assert "training longer would change little" in said(0.06, "level")
    assert "train" not in said(0.03, "level")
