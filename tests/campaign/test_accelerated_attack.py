"""The attack on accelerated ways: sound ones survive, and each kind of fault is found."""

import json
from pathlib import Path
from random import Random

import pytest
import torch

from campaign.attack import Lost, Place, nth_case
from campaign.attacks import _parity, _ways
from campaign.attacks._random_batches import clean, samples_of, spoiled
from campaign.attacks.accelerated import OnCPU, OnCUDA
from ipot.accelerate import cuda as kernels
from ipot.accelerate.cpu.build import why_not, why_not_bf16
from ipot.errors import DataError, Unsupported
from ipot.nn import paths, streaming
from ipot.training.step import Ledger

pytestmark = pytest.mark.plain
CPU = OnCPU()
PLACE = Place(Path(), Path())  # nothing is read or written there
native = pytest.mark.skipif(why_not() is not None, reason=f"no library: {why_not()}")


def case(way="native", *, model=None, spec=None, batch=None, **changes):
    """A small case with nothing special about it."""
    made = {
        "way": way,
        "model": {
            "name": "ipot",
            "width": 16,
            "heads": 2,
            "blocks": 1,
            "seed": 0,
            "norms": True,
            "cross_heads": 2,
            "cross_head_width": None,
            "latents": 5,
            "gain": 2.0,
            "bins": 3,
            "coordinates": "unit",
            "feed_forward": 1,
            "tied": False,
            "lifted": True,
            "narrow": False,
            "local": False,
        }
        | (model or {}),
        "spec": {
            "dimension": 2,
            "channels": 1,
            "outputs": 1,
            "parameters": 0,
            "steps": 1,
            "periodic": False,
            "globe": False,
        }
        | (spec or {}),
        "batch": {
            "size": 3,
            "points": 17,
            "queries": 9,
            "layout": "ragged",
            "grid": None,
            "places": "apart",
            "moving": False,
            "duplicates": False,
            "numbers": "normal",
            "scale": 1.0,
            "offset": 0.0,
            "memory": "plain",
            "rubbish": "other",
            "seed": 0,
        }
        | (batch or {}),
        "normalized": False,
        "check": "gradients",
        "inputs": [],
        "cast": False,
        "rows": 4,
        "threads": 1,
        "steps": 2,
        "packed": True,
        "clipped": True,
        "captured": False,
    }
    return made | changes


SHARED = {"layout": "shared", "rubbish": "zeros"}
SOUND = {
    "native": case(inputs=["values", "points"]),
    "blocks": case("blocks"),
    "fused": case("fused"),
    "uncompiled": case("uncompiled", batch=SHARED),
    "stream": case("stream", inputs=["values"]),
    "pieces": case("pieces", check="answers", batch={"memory": "strided"}),
    "recompute": case("recompute", spec={"steps": 2}),
    "fixed": case("fixed", batch=SHARED),
    "step": case("step"),
    "globe": case(spec={"globe": True}, check="answers"),
    "parameters alone": case(spec={"parameters": 2}, batch={"points": 0}),
    "another model": case(model={"name": "perceiver_io"}, normalized=True),
}


@native
@pytest.mark.parametrize("name", SOUND)
def test_sound_ways_survive(name):
    CPU.run(SOUND[name], PLACE)


@pytest.mark.skipif(why_not_bf16() is not None, reason=f"no kernels in bf16: {why_not_bf16()}")
def test_answers_in_bf16_are_measured_as_such(monkeypatch):
    halves, attend = case("halves", check="answers", cast=True), paths.OURS["halves"]
    CPU.run(halves, PLACE)
    monkeypatch.setitem(paths.OURS, "halves", lambda *given: _scaled(attend(*given), 1.5))
    with pytest.raises(Lost, match="halves: answer differs"):
        CPU.run(halves, PLACE)


def _scaled(found, factor):
    return found[0] * factor, found[1]


@native
def test_an_answer_that_is_off_is_found(monkeypatch):
    attend = paths.OURS["native"]
    monkeypatch.setitem(paths.OURS, "native", lambda *given: _scaled(attend(*given), 1.001))
    with pytest.raises(Lost, match=r"native: answer differs by 0\.") as found:
        CPU.run(case(), PLACE)
    assert found.value.kind == "native, answer differ"


@native
def test_gradients_that_are_off_are_found(monkeypatch):
    attend = paths.OURS["native"]

    def without_queries(query, *rest):
        return attend(query.detach(), *rest)

    monkeypatch.setitem(paths.OURS, "native", without_queries)
    CPU.run(case(check="answers"), PLACE)
    with pytest.raises(Lost, match=r"native: gradient of .* differs"):
        CPU.run(case(), PLACE)


@native
@pytest.mark.parametrize("way", ["native", "blocks"])
def test_a_mask_that_is_ignored_is_found(monkeypatch, way):
    attend = paths.OURS[way]
    monkeypatch.setitem(
        paths.OURS, way, lambda q, p, v, heads, mask=None: attend(q, p, v, heads, None)
    )
    with pytest.raises(Lost, match="answer differs"):
        CPU.run(case(way, check="answers"), PLACE)


@native
def test_an_answer_that_is_not_finite_is_found(monkeypatch):
    attend = paths.OURS["native"]
    nothing = float("nan")
    monkeypatch.setitem(paths.OURS, "native", lambda *given: _scaled(attend(*given), nothing))
    with pytest.raises(Lost, match="native: answer not finite"):
        CPU.run(case(), PLACE)


@native
def test_a_chunk_that_is_lost_is_found(monkeypatch):
    joined = streaming._Running.joined

    def without_the_last(self):
        self.parts = self.parts[:-1] or self.parts
        return joined(self)

    monkeypatch.setattr(streaming._Running, "joined", without_the_last)
    with pytest.raises(Lost, match="stream: answer differs"):
        CPU.run(case("stream", check="answers"), PLACE)


@pytest.mark.parametrize("name", ["gradients", "weights"])
def test_a_step_that_is_off_is_found(monkeypatch, name):
    if name == "gradients":
        clip = Ledger.forward
        monkeypatch.setattr(Ledger, "forward", lambda *given: 1.01 * clip(*given))
    else:
        from ipot.training import step

        set_rate = step.set_rate
        monkeypatch.setattr(step, "set_rate", lambda o, rate: set_rate(o, 1.1 * rate))
    with pytest.raises(Lost, match="step: gradient" if name == "gradients" else "step: weights"):
        CPU.run(case("step"), PLACE)


def test_a_refusal_of_the_accelerated_way_alone_is_found(monkeypatch):
    def refuse(*given):
        raise DataError("not this one")

    monkeypatch.setitem(paths.OURS, "blocks", refuse)
    with pytest.raises(Lost, match="refused, and the plain way is not: not this one"):
        CPU.run(case("blocks"), PLACE)


def test_what_both_ways_refuse_is_refused():
    with pytest.raises(Unsupported, match="full adds lifted queries"):
        CPU.run(case("blocks", model={"lifted": False}), PLACE)


def yardstick(exact, plain, moved=0.0):
    numbers = {"answer": torch.tensor(exact, dtype=torch.float64)}
    other = {"answer": numbers["answer"] + moved}
    return _parity.Yardstick(
        numbers, {"answer": torch.tensor(plain)}, _parity.SINGLE, lambda seed: other
    )


def test_honest_rounding_is_no_finding():
    def judged(found, plain, moved=0.0):
        yardstick([1.0, 2.0], plain, moved).compare({"answer": torch.tensor(found)}, "way")

    judged([1.0, 2.0001], [1.0, 2.0])  # within the tolerance
    judged([1.0, 2.02], [1.0, 2.01])  # by the book it is no better
    judged([1.0, 2.02], [1.0, 2.0], moved=0.01)  # any rounding would do that
    with pytest.raises(Lost, match=r"differs by 0\.01 of its largest entry"):
        judged([1.0, 2.02], [1.0, 2.0], moved=1e-4)


def test_where_the_plain_way_overflows_nothing_is_asked():
    scale = yardstick([1.0, 1e39], [1.0, float("inf")])
    scale.compare({"answer": torch.tensor([1.0, float("nan")])}, "way")
    with pytest.raises(Lost, match="not finite"):
        scale.compare({"answer": torch.tensor([float("nan"), 0.0])}, "way")


@pytest.mark.parametrize("memory", ["plain", "strided", "shifted"])
@pytest.mark.parametrize("rubbish", ["zeros", "other"])
def test_only_padding_is_spoiled(memory, rubbish):
    given = case(batch={"memory": memory, "rubbish": rubbish})
    batch = clean(samples_of(given))
    other = spoiled(batch, given)
    assert torch.equal(other.values[batch.point_mask], batch.values[batch.point_mask])
    assert torch.equal(other.queries[batch.query_mask], batch.queries[batch.query_mask])
    same = bool((other.values == batch.values).all())
    assert same == (rubbish == "zeros")


@pytest.mark.parametrize("attack", [OnCPU(), OnCUDA()], ids=lambda a: a.device)
def test_cases_are_plain_and_of_all_kinds(attack):
    cases = [nth_case(attack, 5, index) for index in range(400)]
    assert json.loads(json.dumps(cases)) == cases
    assert {c["way"] for c in cases} == set(attack.ways)
    assert {c["model"]["name"] for c in cases} > {"ipot", "transformer", "lno", "fno"}
    assert attack.draw(Random("x")) == attack.draw(Random("x"))


def test_smaller_cases_are_simpler_and_still_run():
    large = case("blocks", spec={"parameters": 1}, batch={"scale": 1e3}, inputs=["values"])
    found = list(CPU.smaller(large))
    assert all(c != large for c in found)
    assert any(c["batch"]["points"] == 1 for c in found)
    for smaller in found[::4]:
        CPU.run(smaller, PLACE)


class Interpreted(OnCUDA):
    """The attack on a GPU's kernels, which Triton interprets."""

    device = "cpu"


interpreted = pytest.mark.skipif(
    not (kernels.installed() and kernels.interpreted()), reason="Triton does not interpret here"
)
SMALL = {"size": 2, "points": 5, "queries": 3}


@interpreted
@pytest.mark.parametrize("way", ["auto", "many rows", "stream"])
def test_kernels_survive_and_their_faults_are_found(monkeypatch, way):
    from ipot.accelerate.cuda import attention

    batch = SMALL | ({} if way == "auto" else SHARED)
    given = case(way, batch=batch, model={"latents": 3}, path="kernel")
    if way == "stream":
        given["check"] = "answers"
    Interpreted().run(given, PLACE)
    given["check"] = "answers"
    name = "attend_with_lse" if way == "stream" else "attend"
    attend = getattr(attention, name)

    def off(*given):
        out = attend(*given)
        return (out[0] * 1.01, out[1]) if isinstance(out, tuple) else out * 1.01

    monkeypatch.setattr(attention, name, off)
    with pytest.raises(Lost, match=f"{way}: "):
        Interpreted().run(given, PLACE)


def test_where_there_is_no_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = OnCUDA().possible()
    assert said is not None
    assert "GPU" in said or "Triton" in said


def test_settings_are_as_before_behind_a_case():
    before = paths.FEW
    with _ways.taken(case("uncompiled"), torch.device("cpu")):
        assert paths.FEW == 0
        assert why_not() == "left out by the campaign"
    assert before == paths.FEW
