"""What every problem must hold to."""

import dataclasses
import typing
from functools import cache

import pytest
import torch

from ipot.data.store import Store, fingerprint
from ipot.errors import DataError, UnknownName, Unsupported
from ipot.problems.base import GridProblem
from ipot.recipes.experiment import Experiment, experiment

# The shapes inside of solvers and problems are checked by tests of their own, at half the speed.
pytestmark = pytest.mark.plain

CPU = torch.device("cpu")


def generate(problem, indices=range(2), *, split="test", seed=0):
    if not problem.generated:
        pytest.skip("measured, not generated")
    return problem.generate(
        split, indices, seed=seed, device=CPU, resolution=problem.storage(None, None)
    )


@cache
def generated(problem):
    """The same for tests that only look: some flows take seconds to settle."""
    return generate(problem)


def load(problem, root, count=2, **view):
    if problem.name == "era5":
        pytest.skip("real files only: tests/problems/test_era5.py has these tests, with files")
    return problem.load("test", count, store=Store(root), **view)


def grid(problem) -> GridProblem:
    if not isinstance(problem, GridProblem):
        pytest.skip("not on a grid")
    return problem


def changed(problem, name):
    """The problem with another value of a setting, where one can be thought of."""
    value = getattr(problem, name)
    choices = typing.get_args(typing.get_type_hints(type(problem))[name])
    if isinstance(value, bool):
        other = not value
    elif isinstance(value, str):
        other = next((c for c in choices if c != value), value)
    else:
        other = value if value is None else value * 2
    return dataclasses.replace(problem, **{name: other})


def test_the_spec_agrees_with_the_samples(problem, shelf):
    spec, data = problem.spec, load(problem, shelf)
    assert len(data) == 2
    for index in range(2):
        s = data[index]
        assert s.points.shape[1] == spec.dimension
        assert s.values.shape[1] == spec.channels
        assert s.queries.shape[-1] == spec.query_dimension
        assert s.targets.shape[0] == len(s.times) == spec.steps
        assert s.targets.shape[2] == len(spec.outputs)
        assert (0 if s.parameters is None else len(s.parameters)) == len(spec.parameters)
        assert s.times == pytest.approx([spec.dt * (i + 1) for i in range(spec.steps)])
        for places, domain in ((s.points, spec.domain), (s.queries, spec.query_domain)):
            low, high = torch.tensor(domain).T
            assert (places >= low).all()
            assert (places <= high).all()
            assert (places.amax(-2) - places.amin(-2) > 0.5 * (high - low)).all()
        assert {t.dtype for t in (s.points, s.values, s.queries, s.targets)} == {torch.float32}
    assert spec.name == problem.name
    assert spec.history * len(spec.outputs) <= spec.channels


def test_past_frames_end_where_the_targets_begin(problem, shelf):
    if not problem.spec.history:
        pytest.skip("no past frames")
    sample, spec = load(problem, shelf)[0], problem.spec
    past = sample.values[:, : spec.history * len(spec.outputs)]
    past = past.unflatten(1, (spec.history, len(spec.outputs))).transpose(0, 1)
    frames = torch.cat([past, sample.targets])
    changes = (frames[1:] - frames[:-1]).flatten(1).norm(dim=1)
    assert changes.min() > 0
    assert changes[spec.history - 1] < 2 * changes.median()


def test_points_have_the_structure_that_the_spec_promises(problem, shelf):
    provided = {need.name for need in problem.spec.provides}
    first, second = (load(problem, shelf)[i] for i in range(2))
    assert ("GRID" in provided) == (first.grid is not None)
    assert ("EDGES" in provided) == (first.edges is not None)
    if "SAME_POINTS" in provided:
        assert torch.equal(first.points, first.queries)
    if "FIXED_POINTS" in provided:
        assert torch.equal(first.points, second.points)
        assert torch.Size(problem.spec.shape).numel() == len(first.points)
        assert first.grid in (None, problem.spec.shape)
    else:
        assert problem.spec.shape == ()
    if first.grid is not None:
        assert torch.Size(first.grid).numel() == len(first.points)
    if first.grid is not None and len(first.grid) == problem.spec.dimension:
        lines = [first.points[:, d].unique() for d in range(problem.spec.dimension)]
        assert torch.equal(torch.cartesian_prod(*lines).reshape(-1, len(lines)), first.points)


def test_the_same_seed_gives_the_same_data(problem):
    first, again = generated(problem), generate(problem)
    for name in first:
        assert torch.equal(first[name], again[name]), name


def test_a_sample_does_not_depend_on_its_company(problem):
    """The draw is the same; the solution agrees to the solver's rounding."""
    many, one = generated(problem), generate(problem, range(1, 2))
    for name in many:
        assert one[name].dtype == many[name].dtype
        if one[name].is_floating_point():
            scale = many[name].abs().max()
            torch.testing.assert_close(one[name], many[name][1:], atol=1e-5 * scale, rtol=0)
        else:
            assert torch.equal(one[name], many[name][1:]), name


def test_samples_splits_and_seeds_differ(problem):
    base = generated(problem)
    first = range(1)
    others = [generate(problem, first, split=split) for split in ("train", "validation")]
    others.append(generate(problem, first, seed=1))
    for name in base:
        assert not torch.equal(base[name][0], base[name][1]), name
        for other in others:
            assert not torch.equal(base[name][0], other[name][0]), name


def test_fields_are_finite_and_not_trivial(problem):
    for name, field in generated(problem).items():
        assert field.double().isfinite().all(), name
        assert field.double().std() > 0, name


def test_bytes_each_is_what_a_sample_takes(problem):
    fields = generated(problem)
    taken = sum(t[0].numel() * t.element_size() for t in fields.values())
    assert problem.bytes_each(problem.storage(None, None)) == taken


def test_resolutions_show_the_same_function(problem, shelf):
    problem = grid(problem)
    coarse, fine = problem.resolution, problem.nodes
    views = {
        "coarse": load(problem, shelf),
        "fine": load(problem, shelf, resolution=fine),
        "mixed": load(problem, shelf, resolution=coarse, query_resolution=fine),
        "asked coarsely": load(problem, shelf, resolution=fine, query_resolution=coarse),
    }
    for name, data in views.items():
        here, there = data[1], views["fine"][1]
        for places, columns, all_places, all_columns in (
            (here.points, here.values, there.points, there.values),
            (here.queries, here.targets[0], there.queries, there.targets[0]),
        ):
            rows = {tuple(p): i for i, p in enumerate(all_places.tolist())}
            index = [rows[tuple(p)] for p in places.tolist()]
            assert torch.equal(columns, all_columns[index]), name


@pytest.mark.parametrize("wrong", [0, 1, 10**6, -3])
def test_a_resolution_that_is_no_thinning_is_refused_with_the_possible_ones(
    problem, wrong, tmp_path
):
    problem = grid(problem)
    with pytest.raises(DataError, match=rf"resolution of {wrong} is not a thinning.*Possible"):
        load(problem, tmp_path, resolution=wrong)
    assert problem.resolution in problem.resolutions()
    assert problem.nodes in problem.resolutions()


def test_the_recipe_holds_what_the_data_depend_on(problem):
    keys = {fingerprint(problem.recipe("train", 0, 8))}
    keys.add(fingerprint(problem.recipe("test", 0, 8)))
    keys.add(fingerprint(problem.recipe("train", 1, 8)))
    keys.add(fingerprint(problem.recipe("train", 0, 16)))
    assert len(keys) == 4
    for field in dataclasses.fields(problem):
        if field.name in ("resolution", "files", *problem.views):
            continue
        other = changed(problem, field.name)
        if other == problem:
            continue
        assert fingerprint(other.recipe("train", 0, 8)) not in keys, field.name


def test_views_are_no_part_of_the_recipe(problem):
    for name in problem.views:
        other = changed(problem, name)
        assert other != problem
        assert other.recipe("train", 0, 8) == problem.recipe("train", 0, 8)


def test_the_recipe_leaves_out_what_is_merely_seen(problem):
    seen = dataclasses.replace(grid(problem), resolution=problem.nodes, files="here")
    assert seen.recipe("train", 0, 8) == problem.recipe("train", 0, 8)


def test_a_version_is_part_of_the_recipe(problem, monkeypatch):
    before = fingerprint(problem.recipe("train", 0, None))
    monkeypatch.setattr(type(problem), "version", problem.version + 1)
    assert fingerprint(problem.recipe("train", 0, None)) != before


def test_generated_data_are_read_back(problem, tmp_path, monkeypatch):
    if not problem.generated:
        pytest.skip("measured, not generated")
    first = load(problem, tmp_path, 1)

    def refuse(*_, **__):
        raise AssertionError("generated again")

    monkeypatch.setattr(type(problem), "generate", refuse)
    again = load(problem, tmp_path, 1)
    assert torch.equal(first[0].targets, again[0].targets)
    assert torch.equal(first[0].values, again[0].values)


def test_bad_requests_are_refused(problem, tmp_path):
    with pytest.raises(UnknownName, match=r"unknown split 'valid'.*train, validation, test"):
        problem.load("valid", 1, store=Store(tmp_path))
    with pytest.raises(DataError, match="at least one sample, got 0"):
        problem.load("train", 0, store=Store(tmp_path))


def test_a_horizon_can_be_changed_or_is_refused(problem):
    if problem.spec.steps == 1:
        with pytest.raises(Unsupported, match="steady"):
            problem.with_steps(3)
    else:
        assert problem.with_steps(3).spec.steps == 3
        with pytest.raises(DataError, match="at least one step"):
            problem.with_steps(0)


def test_settings_survive_json(problem):
    settings = experiment(problem.name)
    assert settings.problem.name == problem.name
    settings = dataclasses.replace(settings, problem=problem)
    assert Experiment.from_dict(settings.as_dict(), "here") == settings
    assert set(problem.sizes) == {"train", "validation", "test"}
    assert problem.about
    assert problem.source
