"""The attack by odd arrays finds what is broken on purpose, and nothing where all is well."""

import itertools
import json
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

import ipot
from campaign.attack import Lost, Place, nth_case
from campaign.attacks import _array_bases as bases
from campaign.attacks import _array_cases as cases
from campaign.attacks.arrays import ATTACKS, DOORS, OddArrays, OddTraining
from ipot.data.own import Dataset
from ipot.errors import DataError
from ipot.surrogate.surrogate import Surrogate

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    bases.fit_all(folder, ("mesh", "channels", "timed"))
    return folder


@pytest.fixture
def tried(shared, tmp_path):
    """Try a case in this process."""

    def run(door, base, *changes, also="", attack=ATTACKS[0]):
        case = {"door": door, "base": base, "changes": list(changes), "also": also}
        return attack.run(case, Place(shared, tmp_path))

    return run


@pytest.fixture
def instead(monkeypatch):
    """Replace `Dataset.from_arrays` by a function of the right one and its arguments."""

    def put(function):
        right = Dataset.from_arrays
        monkeypatch.setattr(Dataset, "from_arrays", lambda **given: function(right, given))

    return put


@pytest.mark.parametrize(
    ("door", "base", "also"),
    [
        *(
            ("from_arrays", b, a)
            for b, a in itertools.product(bases.BASES, DOORS["from_arrays"].also)
        ),
        *(("choose", b, "") for b in DOORS["choose"].bases),
        *(("predict", "mesh", a) for a in DOORS["predict"].also),
        *(("predict", "channels", a) for a in DOORS["predict"].also),
        *(("evaluate", "mesh", a) for a in DOORS["evaluate"].also),
        *((d, b, "") for d in ("samples", "labelled", "table", "score") for b in DOORS[d].bases),
        ("surrogate", "burgers", ""),
    ],
)
def test_a_call_that_is_right_survives(tried, door, base, also):
    tried(door, base, also=also)


@pytest.mark.parametrize("oddity", cases.FAMILY_OF)
def test_every_oddity_can_be_made_of_every_array(tmp_path, oddity):
    for shape in [(), (3,), (0,), (4, 2), (4, 0), (2, 3, 2)]:
        a = np.random.default_rng(0).standard_normal(shape)
        for numbers in (a, np.full_like(a, np.nan), 1e300 * a):
            found = cases.given({"a": numbers}, [["a", oddity, 5]], (), tmp_path)
            cases.fingerprint(found.values["a"])
            if "a" in found.plain and found.plain["a"] is not None:
                assert isinstance(found.plain["a"], np.ndarray)


def test_cases_are_plain_json_and_reach_every_door():
    drawn = [nth_case(ATTACKS[0], 1, i) for i in range(400)]
    assert json.loads(json.dumps(drawn)) == drawn
    assert set(Counter(c["door"] for c in drawn)) == set(DOORS)
    assert {c[1] for d in drawn for c in d["changes"]} >= {"nan", "absurd rows", "fortran", "list"}


def test_what_was_given_may_not_be_written_to(tried, instead):
    def writing(right, given):
        data = right(**given)
        given["values"][0] = 7
        return data

    instead(writing)
    with pytest.raises(Lost, match="values was written to"):
        tried("from_arrays", "mesh", ["points", "fortran", 1])


def test_lost_digits_are_found(tried, instead):
    instead(lambda right, g: right(**g | {"targets": g["targets"].astype(np.float16)}))
    with pytest.raises(Lost, match=r"targets: channel 0 .* is held with an error"):
        tried("from_arrays", "mesh", ["points", "read-only", 1])


def test_samples_in_another_order_are_found(tried, instead):
    instead(lambda right, g: right(**g | {"values": g["values"][::-1]}))
    with pytest.raises(Lost, match="values: channel 0"):
        tried("from_arrays", "mesh", ["targets", "fortran", 1])


@pytest.mark.parametrize(
    ("method", "also", "wrong"),
    [
        ("select", "select", lambda data, rows: data[: len(rows)]),
        ("split", "split", lambda data, train: (data[:2], data[:3])),
        ("describe", "describe", lambda data: []),
    ],
)
def test_wrong_parts_of_a_data_set_are_found(tried, monkeypatch, method, also, wrong):
    whole = Dataset.select
    monkeypatch.setattr(
        Dataset,
        "__getitem__",
        lambda self, i: self.data[i] if isinstance(i, int) else whole(self, i),
    )
    monkeypatch.setattr(Dataset, method, wrong)
    with pytest.raises(Lost, match=also):
        tried("from_arrays", "mesh", ["points", "fortran", 1], also=also)


def test_a_plain_array_that_is_refused_is_found(tried, instead):
    def refusing(right, given):
        if given["points"].dtype.byteorder == ">":
            raise DataError("points must not be big-endian")
        return right(**given)

    instead(refusing)
    with pytest.raises(Lost, match="another dtype or layout are refused"):
        tried("from_arrays", "mesh", ["points", "big-endian float64", 1])


@pytest.mark.parametrize(
    ("said", "found"),
    [("", "says nothing"), ("not like this", "names nothing"), ("points " * 400, "characters")],
)
def test_a_refusal_that_helps_nobody_is_found(tried, instead, said, found):
    def refusing(right, given):
        raise DataError(said)

    instead(refusing)
    with pytest.raises(Lost, match=found):
        tried("from_arrays", "mesh", ["points", "nan", 1])


def test_a_refusal_that_names_the_argument_is_one(tried):
    with pytest.raises(DataError, match="values"):
        tried("from_arrays", "mesh", ["values", "nan", 1])


def test_nonsense_that_is_taken_is_found(tried, instead):
    instead(lambda right, g: right(**g | {"values": g["values"].real}))
    with pytest.raises(Lost, match="holds no numbers is taken for values"):
        tried("from_arrays", "mesh", ["values", "complex", 1])


def test_an_error_of_another_kind_passes(tried, instead):
    instead(lambda right, g: g["nothing"])
    with pytest.raises(KeyError):
        tried("from_arrays", "mesh", ["values", "list", 1])


@pytest.mark.parametrize(
    ("wrong", "changes", "also", "found"),
    [
        (lambda a, g: a * np.nan, [], "", "the answer is nan"),
        (lambda a, g: a[..., :-1], [], "", "10 places were asked for"),
        (
            lambda a, g: a + (g["values"].dtype != float),
            [["values", "float32", 1]],
            "",
            "plain form",
        ),
        (lambda a, g: a + g["values"][0, 0], [], "permute", "another order"),
        (lambda a, g: a + 1, [], "encode", "encode"),
    ],
)
def test_wrong_answers_are_found(tried, monkeypatch, wrong, changes, also, found):
    right = Surrogate.predict
    monkeypatch.setattr(Surrogate, "predict", lambda self, **g: wrong(right(self, **g), g))
    with pytest.raises(Lost, match=found):
        tried("predict", "mesh", *changes, also=also)


def test_wrong_scores_are_found(tried, monkeypatch):
    from dataclasses import replace

    right = Surrogate.evaluate

    def wrong(self, data):
        scores = right(self, data)
        return replace(scores, per_sample=[1.01 * s for s in scores.per_sample])

    monkeypatch.setattr(Surrogate, "evaluate", wrong)
    with pytest.raises(Lost, match="relative error of sample 0"):
        tried("evaluate", "mesh", also="by hand")


def test_a_table_that_loses_digits_is_found(tried, monkeypatch):
    from ipot.formats import csv_table as table_write

    monkeypatch.setattr(table_write, "_texts", lambda array: [f"{v:.6g}" for v in array])
    with pytest.raises(Lost, match="read back as other numbers"):
        tried("table", "csv")


def test_workers_do_not_read_each_others_tables(tried, monkeypatch):
    """They share a folder, and another one may write there at any time."""
    from ipot import formats

    right = formats.write_case

    def and_another_worker(file, case):
        right(file, case)
        monkeypatch.setattr(formats, "write_case", right)
        tried("table", "csv", ["u", "negated", 1])

    monkeypatch.setattr(formats, "write_case", and_another_worker)
    tried("table", "csv")


@pytest.mark.filterwarnings("ignore:the data go to time")
def test_bounds_at_other_times_than_those_of_training_are_found(tried, monkeypatch):
    change = ["times", "tensor int64", 313]
    tried("evaluate", "timed", change, also="calibrate")
    monkeypatch.setattr(Surrogate, "calibrate", lambda self, data: None)
    with pytest.raises(Lost, match="bounds were made at other times"):
        tried("evaluate", "timed", change, also="calibrate")


def test_a_refusal_to_calibrate_at_the_times_of_training_is_found(tried, monkeypatch):
    def refused(self, data):
        raise DataError("data have other times")

    monkeypatch.setattr(Surrogate, "calibrate", refused)
    with pytest.raises(Lost, match="taken at first, and then refused"):
        tried("evaluate", "timed", ["times", "float32", 1], also="calibrate")


@pytest.mark.parametrize("years", ["-600", "-50", "200"])
def test_distant_dates_are_as_far_away_as_they_are_meant(years, monkeypatch):
    near = np.array(["2020-01-01"], "datetime64[ns]")
    monkeypatch.setattr(Random, "choice", lambda self, of: "far" if "far" in of else int(years))
    found = cases._other_dates(near, Random(0))
    wanted = np.datetime64("2020-01-01") + np.timedelta64(365 * int(years), "D")
    # As days: numpy compares in the finer unit, where both would wrap around.
    assert str(found[0].astype("datetime64[D]")) == str(wanted)


def test_training_survives_and_answers_far_off_are_found(tried, monkeypatch):
    attack = OddTraining()
    tried("fit", "mesh", ["values", "list", 1], attack=attack)
    right = Surrogate.predict
    monkeypatch.setattr(Surrogate, "predict", lambda self, **g: right(self, **g) + 1e5)
    with pytest.raises(Lost, match="targets vary by"):
        tried("fit", "mesh", attack=attack)


def test_models_are_loaded_once(shared, monkeypatch):
    first = bases.model(shared, "mesh")
    monkeypatch.setattr(ipot, "load", None, raising=False)
    assert bases.model(Path(shared), "mesh") is first


def test_changes_are_left_out_to_make_a_case_small():
    case = OddArrays().draw(Random(1)) | {"changes": [[1], [2], [3]]}
    assert [[2], [3]] in [c["changes"] for c in OddArrays().smaller(case)]
