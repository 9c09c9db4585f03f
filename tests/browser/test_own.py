"""The scene of models that have no other: samples, parameters, files, bounds and downloads, in one,
two and three dimensions."""

import numpy as np
import pytest
from own import tiny

import ipot
from ipot.cli import main
from ipot.formats import Case, read_cases, write_case, write_cases
from ipot.formats.fields import Mesh

COUNT = 40
KEPT = 3
"""Samples that lie beside a model."""
SAMPLED = {"times": "times", "channels": "channels", "space": "space", "line": "line", "all": "all"}
ANSWER = "Answer, by the model"
SIDE = 5
TRIANGLES = 2 * (SIDE - 1) ** 2


def plate(seed):
    """A case of triangles, with an input and a truth."""
    lines = np.linspace(0, 1, SIDE)
    points = np.stack(np.meshgrid(lines, lines, indexing="ij"), -1).reshape(-1, 2)
    points[:, 1] *= 0.5 + 0.3 * points[:, 0]
    cells = []
    for i in range(SIDE - 1):
        for j in range(SIDE - 1):
            a, b = i * SIDE + j, (i + 1) * SIDE + j
            cells += [[a, b, b + 1], [a, b + 1, a + 1]]
    ends, types = np.arange(3, 3 * len(cells) + 1, 3), np.full(len(cells), 5)
    mesh = Mesh(kind="UnstructuredGrid", connectivity=np.ravel(cells), offsets=ends, types=types)
    c = np.random.default_rng(seed).standard_normal(3)
    a = c[0] + c[1] * points[:, 0] + c[2] * points[:, 1]
    return Case(points=points, mesh=mesh, fields={"a": a, "u": a**2 + points[:, 0]})


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Models of a user's own data; some have samples beside them."""
    folder = tmp_path_factory.mktemp("own")
    for name, kind in SAMPLED.items():
        tiny.quick(tiny.data(kind, COUNT), epochs=1, blend=False).save(folder / name)
        arrays = {
            key: array[:KEPT] if len(array) == COUNT else array
            for key, array in tiny.arrays(kind, COUNT).items()
        }
        np.savez(folder / name / "samples.npz", **arrays)
    for kind in ("mesh", "parameters"):
        tiny.quick(tiny.data(kind, COUNT), epochs=1, blend=False).save(folder / kind)
        (folder / kind / "samples.npz").unlink()
    for k in range(COUNT):
        write_case(folder / "files" / f"{k}.vtu", plate(k))
    source = folder / "files"
    tiny.quick(source, inputs="a", targets="u", epochs=1, blend=False).save(folder / "cases")
    (folder / "cases" / "samples.npz").unlink()
    # As a fit leaves it.
    tiny.quick(tiny.data("mesh", COUNT), epochs=1, blend=False).save(folder / "fitted")
    # As a fit of a million points leaves it: some of them.
    tiny.quick(tiny.data("mesh", COUNT), epochs=1, blend=False).save(folder / "large")
    some = tiny.arrays("mesh", COUNT)
    some = {n: some[n] if n == "points" else some[n][:1] for n in ("points", "values", "targets")}
    some |= {"points": some["points"][None], "whole": np.array([[1_000_000, 1_000_000]])}
    np.savez(folder / "large" / "samples.npz", **some)
    names = (*SAMPLED, "mesh", "parameters", "cases", "fitted", "large")
    return {name: folder / name for name in names}


@pytest.fixture(scope="session")
def server(serve, models, chromium):
    return serve(*models.values())


def samples(models, name):
    with np.load(models[name] / "samples.npz") as found:
        return dict(found)


def text(page):
    return page.page.locator("main").text_content()


def said(page, name="relative error"):
    return float(page.numbers()[name].removesuffix("%"))


def distance(answer, truth):
    return 100 * np.linalg.norm(np.ravel(answer) - np.ravel(truth)) / np.linalg.norm(truth)


def scrub(page, frame):
    page.page.get_by_label("time", exact=True).evaluate(
        "(slider, frame) => { slider.value = frame; slider.dispatchEvent(new Event('input')); }",
        frame,
    )


def upload(page, path):
    """Choose a file and wait until it is answered."""
    page.page.locator("input[type=file]").set_input_files(path)
    page.page.wait_for_function("() => !document.querySelector('input[type=file]').disabled")


def predicted(model, path, out, *flags):
    """What `ipot predict FILE` writes."""
    assert main(["predict", str(model), str(path), "--out", str(out), *flags]) == 0
    return out


def downloaded(page, folder):
    with page.page.expect_download() as found:
        page.press("Download the answer")
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path


def test_a_sample_and_its_times(visit, same, models):
    page = visit("times")
    found = same(page, "times")
    kept = samples(models, "times")
    np.testing.assert_allclose(found["values"], kept["values"][0], rtol=1e-6)
    assert found["prediction"].shape == (3, 12)
    assert said(page) == pytest.approx(distance(found["prediction"], kept["targets"][0]), rel=0.05)
    assert "12 places at 3 times" in page.page.locator(".time").text_content()
    for frame, time in ((2, "t = 2"), (0, "t = 0.5")):
        scrub(page, frame)
        assert page.page.locator(".player output").text_content() == time
        painted = page.read("state.painted")
        np.testing.assert_allclose(painted["answer"], found["prediction"][frame], rtol=1e-6)
        np.testing.assert_allclose(painted["truth"], kept["targets"][0][frame], rtol=1e-6)
        error = np.abs(found["prediction"][frame] - kept["targets"][0][frame])
        np.testing.assert_allclose(painted["error"], error, rtol=1e-4, atol=1e-6)
    page.press("Test sample")
    page.settle()
    again = same(page, "times")
    np.testing.assert_allclose(again["values"], kept["values"][1], rtol=1e-6)
    assert said(page) == pytest.approx(distance(again["prediction"], kept["targets"][1]), rel=0.05)


def test_a_fit_opens_on_a_sample_that_it_has_not_learned_from(visit, same, models):
    page = visit("fitted")
    found = same(page, "fitted")
    kept = samples(models, "fitted")
    assert page.page.get_by_text("came without samples").is_hidden()
    np.testing.assert_array_equal(found["values"], kept["values"][0])
    assert said(page) == pytest.approx(distance(found["prediction"], kept["targets"][0]), rel=0.05)


def test_a_choice_of_outputs(visit, same, models):
    page = visit("channels")
    found = same(page, "channels")
    truth = samples(models, "channels")["targets"][0]
    for k in (0, 1, 2):
        page.choose(f"target_{k}")
        painted = page.read("state.painted.answer")
        np.testing.assert_allclose(painted, found["prediction"][:, k], rtol=1e-5, atol=1e-6)
        wanted = distance(found["prediction"][:, k], truth[:, k])
        assert said(page, f"relative error of target_{k}") == pytest.approx(wanted, rel=0.05)


def test_parameters_are_set(visit, same, models):
    page = visit("all")
    before = same(page, "all")
    kept = samples(models, "all")
    np.testing.assert_allclose(before["parameters"], kept["parameters"][0], rtol=1e-6)
    assert page.figure("Truth").is_visible()
    name = page.page.locator(".slider label").first.text_content()
    page.slide(name, 0.75)
    page.settle()
    found = same(page, "all")
    assert found["parameters"][0] == pytest.approx(0.75, abs=0.01)
    np.testing.assert_array_equal(found["parameters"][1:], before["parameters"][1:])
    np.testing.assert_array_equal(found["values"], before["values"])
    assert np.abs(found["prediction"] - before["prediction"]).max() > 1e-7
    assert not page.figure("Truth").is_visible()  # it belongs to the sample's own parameters


def test_parameters_alone_need_no_sample(visit, same):
    page = visit("parameters")
    found = same(page, "parameters")
    assert len(found["queries"]) > 2000
    ends = tiny.X.min(0), tiny.X.max(0)
    np.testing.assert_allclose((found["queries"].min(0), found["queries"].max(0)), ends, rtol=1e-5)
    assert page.read("state.places.triangles").size % 3 == 0
    page.slide(page.page.locator(".slider label").first.text_content(), 0.2)
    page.settle()
    again = same(page, "parameters")
    assert again["parameters"][0] == pytest.approx(0.2, abs=0.01)
    assert np.abs(again["prediction"] - found["prediction"]).max() > 1e-7


def test_bounds_of_a_field(visit, same, models):
    page = visit("channels")
    assert not page.figure("Width of the bounds").is_visible()
    page.choose("50 %")
    page.settle()
    found = same(page, "channels")  # low and high as well
    assert found["interval"] == 0.5
    assert page.figure("Width of the bounds").is_visible()
    width = page.read("state.painted.width")
    np.testing.assert_allclose(width, (found["high"] - found["low"])[:, 0], rtol=1e-4, atol=1e-6)
    truth = samples(models, "channels")["targets"][0]
    share = ((truth >= found["low"]) & (truth <= found["high"])).mean()
    told = text(page).split("The truth lies within at ")[1].split(" %")[0]
    assert float(told) == pytest.approx(100 * share, abs=1)
    page.choose("Off")
    page.settle()
    assert "interval" not in page.last()["inputs"]
    assert not page.figure("Width of the bounds").is_visible()


def test_curves_with_their_bounds(visit, same):
    page = visit("line")
    bare = page.pixels(ANSWER)
    page.choose("50 %")
    page.settle()
    found = same(page, "line")
    assert found["points"].shape == (12,)
    assert (found["low"] <= found["high"]).all()
    assert "Bounds of 50 %" in page.page.locator(".keys").all_text_contents()[1]
    assert not page.figure("Width of the bounds").is_visible()
    assert (page.pixels(ANSWER) != bare).any()


def test_points_in_space_are_turned(visit, same):
    page = visit("space")
    same(page, "space")
    before, look = page.pixels(ANSWER), page.read("room.scene.look")
    page.stroke(ANSWER, [(0.3, 0.5), (0.6, 0.5)])
    turned = page.read("room.scene.look")
    assert turned["turn"] == pytest.approx(look["turn"] - 90 * 0.3 * 2.08, abs=2)
    assert turned["tilt"] == pytest.approx(look["tilt"], abs=1)
    assert (page.pixels(ANSWER) != before).any()
    page.figure(ANSWER).focus()
    page.page.keyboard.press("ArrowUp")
    page.page.keyboard.press("ArrowRight")
    found = page.read("room.scene.look")
    assert found["tilt"] == pytest.approx(turned["tilt"] - 10)
    assert found["turn"] == pytest.approx(turned["turn"] - 10)


def test_the_answer_to_a_sample_is_downloaded(visit, same, tmp_path):
    page = visit("times")
    found = same(page, "times")
    path = downloaded(page, tmp_path)
    assert path.name == "times_answer.npz"
    with np.load(path) as kept:
        np.testing.assert_array_equal(kept["prediction"], found["prediction"])
        np.testing.assert_allclose(kept["queries"], tiny.X, rtol=1e-6)


@pytest.fixture
def bare(open_page, server):
    """A page of a model that there are no samples of."""

    def start(name, **options):
        page = open_page(f"{server.address}?model={name}", **options)
        page.page.wait_for_selector(".missing:visible")
        return page

    return start


def test_without_samples_it_says_what_to_do(bare):
    page = bare("mesh")
    told = page.page.locator(".missing").text_content()
    assert "“mesh” came without samples" in told
    assert "samples.npz in its folder: arrays points, values, queries, targets" in told
    assert not page.page.get_by_role("button", name="Download the answer").is_visible()


def test_a_file_of_arrays(bare, models, tmp_path):
    page = bare("mesh")
    values = tiny.arrays("mesh", COUNT)["values"][7]
    np.savez(tmp_path / "one.npz", points=tiny.X, values=values)
    upload(page, tmp_path / "one.npz")
    wanted = ipot.load(models["mesh"]).predict(points=tiny.X, values=values)
    np.testing.assert_allclose(page.read("state.painted.answer"), wanted, rtol=1e-4, atol=1e-5)
    assert not page.page.locator(".missing").is_visible()
    assert "12 places" in page.page.locator(".time").text_content()
    path = downloaded(page, tmp_path)
    assert path.name == "one_answer.npz"
    out = predicted(models["mesh"], tmp_path / "one.npz", tmp_path / "command.npz")
    with np.load(path) as mine, np.load(out) as theirs:
        assert set(mine) == set(theirs)
        for name in mine:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", [None, "50 %"])
def test_a_mesh_with_its_truth(bare, models, tmp_path, level):
    """A file of VTK: its triangles are painted, and its answer is that of `ipot predict`."""
    page = bare("cases")
    write_case(tmp_path / "new plate.vtu", plate(100))
    if level:
        page.choose(level)
    upload(page, tmp_path / "new plate.vtu")
    flags = ("--interval", "0.5") if level else ()
    out = predicted(models["cases"], tmp_path / "new plate.vtu", tmp_path / "out.vtu", *flags)
    wanted = read_cases(out)[0].fields
    answer = page.read("state.painted.answer")
    np.testing.assert_allclose(answer, wanted["u_predicted"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(page.read("state.painted.truth"), wanted["u"], rtol=1e-5)
    assert len(page.read("state.places.triangles")) == 3 * TRIANGLES
    assert said(page) == pytest.approx(distance(answer, wanted["u"]), rel=0.05)
    if level:
        width = wanted["u_predicted_high"] - wanted["u_predicted_low"]
        np.testing.assert_allclose(page.read("state.painted.width"), width, rtol=1e-3, atol=1e-4)
    path = downloaded(page, tmp_path)
    assert path.name == "new plate_answer.vtu"
    mine = read_cases(path)[0].fields
    assert set(mine) == set(wanted)
    for name in mine:
        np.testing.assert_allclose(mine[name], wanted[name], rtol=1e-4, atol=1e-4)


def test_several_cases_are_downloaded(bare, models, tmp_path):
    page = bare("cases")
    write_cases(tmp_path / "many.h5", [plate(k) for k in (7, 8)], ["first", "second"])
    upload(page, tmp_path / "many.h5")
    assert "There is no picture of it, since it has several cases" in text(page)
    page.forgive("422")  # asked for a picture of them
    assert not page.figure(ANSWER).is_visible()
    out = predicted(models["cases"], tmp_path / "many.h5", tmp_path / "command.h5")
    mine, theirs = read_cases(downloaded(page, tmp_path)), read_cases(out)
    assert len(mine) == len(theirs) == 2
    for one, other in zip(mine, theirs, strict=True):
        found, wanted = one.fields["u_predicted"], other.fields["u_predicted"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    write_case(tmp_path / "one.vtu", plate(9))  # and then a picture again
    upload(page, tmp_path / "one.vtu")
    assert page.figure(ANSWER).is_visible()


def test_a_file_that_is_none(bare, tmp_path):
    page = bare("cases")
    (tmp_path / "broken.vtu").write_text("no mesh at all")
    upload(page, tmp_path / "broken.vtu")
    error = page.page.locator(".error").text_content()
    assert "broken.vtu" in error
    assert str(tmp_path) not in error
    page.forgive("422")
    write_case(tmp_path / "fine.vtu", plate(9))
    upload(page, tmp_path / "fine.vtu")
    assert not page.page.locator(".error").is_visible()
    assert page.figure(ANSWER).is_visible()


def test_a_sample_after_a_file(visit, same, models, tmp_path):
    """What was shown of a file is gone, and the parameters are there again."""
    page = visit("all")
    data = tiny.arrays("all", COUNT)
    one = {"points": data["points"], "queries": data["queries"]}
    np.savez(
        tmp_path / "mine.npz", **one, values=data["values"][9], parameters=data["parameters"][9]
    )
    upload(page, tmp_path / "mine.npz")
    given = {**one, "values": data["values"][9], "parameters": data["parameters"][9]}
    wanted = ipot.load(models["all"]).predict(**given)
    np.testing.assert_allclose(page.read("state.painted.answer"), wanted, rtol=1e-4, atol=1e-5)
    assert not page.page.locator(".slider").first.is_visible()
    page.press("Test sample")
    page.settle()
    found = same(page, "all")
    np.testing.assert_allclose(found["values"], samples(models, "all")["values"][1], rtol=1e-6)
    assert page.page.locator(".slider").first.is_visible()
    assert downloaded(page, tmp_path).name == "all_answer.npz"


def test_by_the_keys_alone(visit, same):
    page = visit("all")
    before = same(page, "all")
    page.page.locator(".slider input").first.focus()
    page.page.keyboard.press("End")
    page.settle()
    found = same(page, "all")
    assert found["parameters"][0] > before["parameters"][0]
    page.page.locator("input[type=file]").focus()
    outline = page.page.locator(".file + label").evaluate("(l) => getComputedStyle(l).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("name", ["times", "line", "space"])
def test_on_a_phone(phone, same, name):
    same(phone(name), name)


def test_a_model_of_very_many_points_opens_on_some_of_them(visit):
    page = visit("large")
    told = text(page)
    count = f"{len(tiny.X):,}"
    assert f"is asked with {count} of the 1,000,000 points of this sample" in told
    assert f"answers at {count} of 1,000,000" in told
    assert np.isfinite(page.read("room.last.answer.prediction.data")).all()
    assert page.figure("Truth").is_visible()
    # Other models say nothing of the kind.
    assert "of this sample" not in text(visit("fitted"))


def test_of_very_many_places_some_are_drawn(visit, tmp_path):
    """A file of more places than can be told apart: the line says how many there are."""
    random = np.random.default_rng(0)
    points = random.random((70_000, 2))
    np.savez(tmp_path / "many.npz", points=points, values=points[:, 0])
    page = visit("fitted")
    upload(page, tmp_path / "many.npz")
    assert "60,000 of 70,000 places are drawn" in text(page)
    assert len(page.read("state.painted.answer")) == 70_000
    pixels = page.pixels(ANSWER)[..., 3] > 0
    height, width = pixels.shape
    blocks = pixels[: height // 4 * 4, : width // 4 * 4].reshape(4, height // 4, 4, width // 4)
    assert blocks.mean((1, 3)).min() > 0.2, "a part of the domain has no dots"
    np.savez(tmp_path / "few.npz", points=points[:500], values=points[:500, 0])
    upload(page, tmp_path / "few.npz")
    assert "places are drawn" not in "".join(
        page.page.locator("figure p.few:visible").all_text_contents()
    )
