"""A model card says what a stranger must know, and nothing in it is taken for markup."""

import re

import pytest

from ipot.saved.card import card, scales_of
from ipot.saved.folder import Saved
from saved.small import config, facts, model


def made(spec, *, bounded=False, **changes):
    told = {"scores": {"held_out": 0.0123, "baselines": {"mean field": 0.5}}, "about": {}}
    saved = Saved(model_name="ipot", model=config(), spec=spec, **told | changes)
    return card(saved.as_dict(), scales_of(model(spec)), bounded=bounded)


def rows(text):
    """All tables, as lists of cells; escaped bars are no borders."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_what_goes_in_and_out_with_units_and_ranges():
    spec = facts(units=("K", "m/s"), parameters=("p",), periods=(1.0, None), steps=3, dt=0.5)
    found = rows(made(spec))
    assert ["points and queries", "0", "0", "1", "1"] in found
    assert ["points and queries", "1", "-1", "3", ""] in found
    scales = scales_of(model(spec))
    for kind, name, unit, i in (("input", "b", "", 1), ("parameter", "p", "", 0)):
        mean, scale = (side[i] for side in scales[kind])
        assert [kind, name, unit, f"{mean:.4g} ± {scale:.3g}"] in found
    assert [row[:3] for row in found if row[0] == "output"] == [
        ["output", "u", "K"],
        ["output", "v", "m/s"],
    ]
    assert "3 times 0.5 apart" in made(spec)


def test_scores_stand_beside_those_of_simple_guesses():
    found = rows(made(facts()))
    assert ["held out", "0.0123"] in found
    assert ["baselines, mean field", "0.5"] in found
    assert "not been scored" in made(facts(), scores={})


def test_where_it_comes_from():
    about = {
        "samples": {"train": 90, "held out": 10},
        "seconds": 12.5,
        "described": ["64 points", "in: a"],
        "training": {f"setting_{i}": i for i in range(9)},
        "date": None,
    }
    found = rows(made(facts(), about=about))
    for row in (["samples, train", "90"], ["seconds", "12.5"], ["described", "64 points, in: a"]):
        assert row in found
    assert ["date", "unknown"] in found
    assert not any("setting" in cell for row in found for cell in row)


@pytest.mark.parametrize(
    ("changes", "call"),
    [
        ({}, "predict(points=x, values=a, queries=y)"),
        ({"parameters": ("p",)}, "predict(points=x, values=a, queries=y, parameters=p)"),
        ({"inputs": ()}, "predict(points=x, queries=y)"),
        ({"inputs": (), "parameters": ("p",)}, "predict(queries=y, parameters=p)"),
    ],
)
def test_how_to_ask_it(changes, call):
    code = re.search(r"```python\n(.*?)```", made(facts(**changes)), re.S)[1]
    assert call in code
    assert len(code.splitlines()) <= 4
    compile(code, "card", "exec")


def test_intervals_are_told_of_where_there_are_some():
    assert "interval=0.9" in made(facts(), bounded=True)
    assert "interval" not in made(facts())


def test_what_was_taken_off_coordinates_is_put_back():
    found = rows(made(facts(), layout={"origin": [500000.0, 0.0]}))
    assert ["points and queries", "0", "500000", "500001", ""] in found
    assert ["points and queries", "1", "-1", "3", ""] in found


def test_degrees_are_named():
    spec = facts(geographic=True, domain=((0.0, 360.0), (-90.0, 90.0)))
    assert ["points and queries", "longitude, degrees", "0", "360", ""] in rows(made(spec))


def test_points_are_left_out_where_parameters_are_all():
    text = made(facts(inputs=(), parameters=("p",)))
    assert {row[0] for row in rows(text) if row[0].startswith(("points", "queries"))} <= {
        "points and queries",
        "queries",
    }
    assert "parameters in" in text


def test_words_of_others_stay_words():
    evil = "a | b\n# <script>`x`[link](http://x)"
    text = made(facts(name=evil, outputs=(evil, "v")), about={evil: evil, "license": evil})
    assert "\n# <script>" not in text
    assert "<script>" not in text.replace("\\<script\\>", "").split("---")[2]
    widths = {len(row) for row in rows(text) if row[0] == "output"}
    assert widths == {4}


@pytest.mark.parametrize("license", ["mit", "unknown", "no", "a: b", '"quoted" # and \\ more', "3"])
def test_the_front_matter_is_yaml(license):
    yaml = pytest.importorskip("yaml")
    text = made(facts(), about={"license": license})
    _, front, rest = text.split("---\n", 2)
    found = yaml.safe_load(front)
    assert found["library_name"] == "ipot"
    assert found["license"] == license
    assert {"ipot", "operator-learning"} <= set(found["tags"])
    assert len(set(found["tags"])) == len(found["tags"])
    assert rest.lstrip().startswith("# a test")
