"""From fields by name to a data set."""

import numpy as np
import pytest

from formats.making import square, triangles
from ipot.errors import DataError, UnknownName
from ipot.formats import Arrays, Case, limits, read_cases
from ipot.formats.cases import dataset_of

random = np.random.default_rng(0)


def made(n=6, d=2, **changes):
    fields = {"a": random.random(n), "u": random.random((n, 2)), "w": random.random((n, 4))}
    content = {
        "points": random.random((n, d)),
        "fields": fields,
        "parameters": {"re": random.random(1), "angles": random.random(2)},
        "units": {"u": "m/s"},
        "source": "some.vtu",
    }
    return Case(**content | changes)


def close(tensor, array):
    np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-6)


def test_fields_become_channels():
    cases = [made(n) for n in (6, 8, 7)]
    data = dataset_of(
        cases, inputs=["a", "w"], targets=["u"], parameters=["re", "angles"], name="x"
    )
    spec = data.spec
    assert spec.inputs == ("a", "w_0", "w_1", "w_2", "w_3")
    assert spec.outputs == ("u_x", "u_y")
    assert spec.parameters == ("re", "angles_0", "angles_1")
    assert (spec.units, spec.name) == (("m/s", "m/s"), "x")
    for case, sample in zip(cases, data, strict=True):
        close(sample.points, case.points)
        close(sample.queries, case.points)
        close(sample.values, np.column_stack([case.fields["a"], case.fields["w"]]))
        close(sample.targets[0], case.fields["u"])
        close(sample.parameters, [*case.parameters["re"], *case.parameters["angles"]])


def test_one_component_by_name():
    case = made()
    data = dataset_of([case], inputs=["w_2", "u_x"], targets=["u_1"])
    assert (data.spec.inputs, data.spec.outputs) == (("w_2", "u_x"), ("u_1",))
    close(data[0].values, np.column_stack([case.fields["w"][:, 2], case.fields["u"][:, 0]]))
    close(data[0].targets[0], case.fields["u"][:, 1:])


def test_a_mesh_that_all_share_is_kept_once():
    points = random.random((6, 2))
    cases = [made(points=points.copy()) for _ in range(3)]
    data = dataset_of(cases, inputs=["a"], targets=["u"])
    assert data.data.stacked
    assert len(data.data.data.points) == 1


def test_parameters_alone():
    points = random.random((6, 2))
    cases = [made(points=points) for _ in range(3)]
    data = dataset_of(cases, targets=["u"], parameters=["re"])
    assert len(data[0].points) == 0
    close(data[0].queries, points)
    # Where meshes differ they matter too.
    data = dataset_of([made() for _ in range(3)], targets=["u"], parameters=["re"])
    assert len(data[0].points) == 6
    assert data.spec.inputs == ()


def test_the_places_alone():
    cases = [made(n) for n in (6, 8)]
    data = dataset_of(cases, targets="a")
    assert data.spec.inputs == ()
    close(data[1].points, cases[1].points)


def test_a_column_that_is_constant_is_a_parameter():
    cases = [made(fields={"a": random.random(6), "mach": np.full(6, i)}) for i in range(2)]
    data = dataset_of(cases, targets=["a"], parameters=["mach"])
    assert [s.parameters.tolist() for s in data] == [[0.0], [1.0]]
    with pytest.raises(DataError, match=r"some\.vtu: a differs from point to point.*an input"):
        dataset_of(cases, targets=["a"], parameters=["a"])


def test_fields_on_cells_are_at_their_centres():
    case = square(source="s")
    data = dataset_of([case], inputs=["a"], targets=["p"])
    close(data[0].points, case.points)
    close(data[0].queries, [[1 / 3, 1 / 3], [2 / 3, 2 / 3]])
    close(data[0].targets[0, :, 0], case.cell_fields["p"])
    both = square(cell_fields={"a": np.array([5.0, 6.0])}, source="s")
    assert dataset_of([both], targets=["a"])[0].targets.shape == (1, 4, 1)
    assert dataset_of([both], targets=["a"], where="cells")[0].targets.shape == (1, 2, 1)
    with pytest.raises(
        DataError, match="all be at points or all on cells; at points are a, on cells p"
    ):
        dataset_of([case], targets=["a", "p"])


def test_targets_of_other_cases():
    seen, asked = [made(4), made(5)], [made(8), made(9)]
    data = dataset_of(seen, inputs=["a"], targets=["u"], queries_from=asked)
    assert [len(s.points) for s in data] == [4, 5]
    close(data[1].queries, asked[1].points)
    close(data[1].targets[0], asked[1].fields["u"])
    with pytest.raises(DataError, match="queries_from has 1 cases and there are 2"):
        dataset_of(seen, inputs=["a"], targets=["u"], queries_from=asked[:1])


def test_a_plane_in_a_file_of_three_coordinates():
    def flat(z, cells=False):
        points = np.array([[0, 0, z], [1, 0, z], [0, 1, z], [1, 1, z]])
        return Case(points=points, fields={"a": random.random(4)}, mesh=triangles())

    assert dataset_of([flat(2.0), flat(2.0)], targets=["a"]).spec.dimension == 2
    # Planes at several heights are told apart by them.
    assert dataset_of([flat(2.0), flat(3.0)], targets=["a"]).spec.dimension == 3
    line = Case(points=np.array([[0.0, 5.0], [1.0, 5.0]]), fields={"a": np.arange(2.0)})
    assert dataset_of([line], targets=["a"]).spec.dimension == 1


@pytest.mark.parametrize("what", ["inputs", "targets", "parameters"])
def test_a_name_that_is_not_there_lists_those_that_are(what):
    given = {"inputs": ["a"], "targets": ["u"], "parameters": ["re"]} | {what: ["none"]}
    with pytest.raises(UnknownName, match=r"some\.vtu has no .* 'none'; it has .*a, u, w"):
        dataset_of([made()], **given)


def test_a_field_that_one_case_lacks_is_refused_by_its_name():
    cases = [made(), made(fields={"a": random.random(6)}, source="other.vtu")]
    with pytest.raises(UnknownName, match=r"other\.vtu has no target field 'u'; it has a"):
        dataset_of(cases, inputs=["a"], targets=["u"])
    cases[1] = made(fields={"a": random.random(6), "u": random.random((6, 3))}, source="other.vtu")
    with pytest.raises(DataError, match=r"other\.vtu has the channels a, u_x, u_y, u_z"):
        dataset_of(cases, inputs=["a"], targets=["u"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"inputs": ["a"]}, "targets is empty.*there are a, u, w"),
        ({"targets": ["u", "u_x"]}, "targets name a channel twice"),
    ],
)
def test_names_that_make_no_sense(given, said):
    with pytest.raises(DataError, match=said):
        dataset_of([made()], **given)


def test_no_cases():
    with pytest.raises(DataError, match="no cases"):
        dataset_of([], targets=["a"])


def test_not_finite_values_are_refused():
    with pytest.raises(DataError, match=r"a holds nan in row 5.*not finite"):
        dataset_of([made(fields={"a": np.array([1, 2, 3, 4, 5, np.nan])})], targets=["a"])


class TestArrays:
    arrays = Arrays(
        points=random.random((6, 2)),
        values=random.random((3, 6, 2)),
        targets=random.random((3, 6, 3)),
        parameters=random.random((3, 2)),
        inputs=("k", "f"),
        units={"targets": "K"},
        source="some.npz",
    )

    def test_as_they_are(self):
        data = dataset_of(self.arrays)
        assert data.spec.inputs == ("k", "f")
        assert data.spec.outputs == ("target_0", "target_1", "target_2")
        close(data[1].targets[0], self.arrays.targets[1])

    def test_some_channels(self):
        data = dataset_of(
            self.arrays, inputs=["f"], targets=["target_2", "target_0"], parameters=["parameter_1"]
        )
        close(data[1].values, self.arrays.values[1][:, 1:])
        close(data[1].targets[0], self.arrays.targets[1][:, [2, 0]])
        close(data[1].parameters, self.arrays.parameters[1, 1:])
        assert data.spec.outputs == ("target_2", "target_0")
        assert data.spec.units == ("K", "K")

    def test_refused(self):
        with pytest.raises(UnknownName, match=r"some\.npz has no channel.* 'q'; it has k, f"):
            dataset_of(self.arrays, inputs=["q"])
        bare = Arrays(targets=self.arrays.targets, points=self.arrays.points, source="s")
        with pytest.raises(DataError, match="s has no values, and a is asked for"):
            dataset_of(bare, inputs=["a"])

    def test_lists_and_times(self, tmp_path):
        for i, n in enumerate((4, 5)):
            np.savez(
                tmp_path / f"{i}.npz",
                points=random.random((n, 2)),
                values=random.random((n, 2)),
                targets=random.random((3, n)),
                times=[1.0, 2.0, 3.0],
            )
        data = dataset_of(read_cases(tmp_path), inputs=["value_1"])
        assert data[1].targets.shape == (3, 5, 1)
        assert data.spec.inputs == ("value_1",)
        assert data.spec.steps == 3


def test_trajectories_need_frames(tmp_path):
    from formats.test_hdf5 import well

    well(tmp_path / "a.hdf5")
    with pytest.raises(DataError, match="--history, --lead"):
        dataset_of(read_cases(tmp_path / "a.hdf5"), targets=["u"])


@pytest.mark.parametrize("targets", [(), ("u",)])
def test_numbers_where_rows_are_meant_are_refused(targets):
    """Targets (S) have no axis for the points."""
    arrays = Arrays(targets=np.zeros(3), points=np.zeros((4, 2)), outputs=("u",), source="a.npz")
    with pytest.raises(DataError, match="targets has 1 axes"):
        dataset_of(arrays, targets=targets)


def test_more_channels_than_can_be_named_are_refused(monkeypatch):
    """From a small file that unpacks to much: their names would exhaust memory."""
    monkeypatch.setattr(limits, "CHANNELS", 4)
    with pytest.raises(DataError, match=r"parameter re of some\.vtu has 5 channels"):
        dataset_of([made(parameters={"re": np.zeros(5)})], targets=["a"], parameters=["re"])
    wide = random.random((6, 5))
    with pytest.raises(DataError, match="field a has 5 channels"):
        dataset_of([made(fields={"a": wide})], targets=["a"])
    arrays = Arrays(targets=wide[None], points=random.random((6, 2)), source="a.npz")
    with pytest.raises(DataError, match=r"targets of a\.npz has 5 channels"):
        dataset_of(arrays)
    assert dataset_of([made()], targets=["w"]).spec.outputs == ("w_0", "w_1", "w_2", "w_3")
