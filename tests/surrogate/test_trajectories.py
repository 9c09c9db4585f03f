"""Trajectories as windows of frames, and forecasts as trajectories again."""

from dataclasses import replace

import numpy as np
import pytest
from own import files, tiny

from ipot.errors import DataError, IpotError
from ipot.formats import read_cases
from ipot.formats.open_data import open_data
from ipot.formats.the_well import write_well
from ipot.formats.trajectories import after, carried_on, latest, windows_of


def test_windows_hold_the_frames_they_say():
    source = files.trajectories()
    found = windows_of(source, targets=["h"], inputs=["h", "ground"], history=2, lead=3, every=2)
    # Frames 0 and 2 in, 4, 6 and 8 out: one window of each trajectory.
    assert len(found.data) == 4
    assert found.span == 9
    assert found.data.spec.inputs == ("h[-1]", "h[0]", "ground")
    assert found.data.spec.outputs == ("h",)
    assert found.data.spec.parameters == ("speed",)
    assert found.data.spec.units == ("m",)
    assert found.data.spec.periods == (1.0, None)
    h = source.fields["h"].read(2)[..., 0]
    sample = found.data[2]
    np.testing.assert_allclose(sample.values[:, 0], h[0], rtol=1e-6)
    np.testing.assert_allclose(sample.values[:, 1], h[2], rtol=1e-6)
    np.testing.assert_allclose(sample.values[:, 2], source.points[:, 1], rtol=1e-6)
    np.testing.assert_allclose(sample.truth[:, :, 0], h[[4, 6, 8]], rtol=1e-6)
    assert sample.parameters.item() == pytest.approx(source.parameters["speed"][2])
    assert sample.times == (1.0, 2.0, 3.0)
    assert sample.grid == (4, 3)


def test_windows_lie_one_behind_the_other_unless_told():
    source = files.trajectories(count=2)
    found = windows_of(source, history=1, lead=2)
    assert found.starts.tolist() == [0, 2, 4, 6] * 2
    assert found.owners.tolist() == [0] * 4 + [1] * 4
    assert windows_of(source, history=1, lead=2, stride=1).starts.tolist() == list(range(7)) * 2


def test_all_that_changes_is_learned_unless_said():
    data = windows_of(files.trajectories()).data
    assert data.spec.outputs == ("h", "wind_x", "wind_y")
    assert data.spec.inputs == ("h", "wind_x", "wind_y")
    assert data.spec.units == ("m", "m/s", "m/s")
    assert windows_of(files.trajectories(), parameters=()).data.spec.parameters == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"history": 0}, "history must be at least 1, got 0"),
        ({"lead": 0}, "lead must be at least 1"),
        ({"every": -1}, "every must be at least 1"),
        ({"stride": 0}, "stride must be at least 1"),
        ({"history": 5, "lead": 5}, "take 10 frames, and trajectories have 9. Lower --history"),
        ({"targets": ["x"]}, "waves has no target field 'x'; it has h, wind, ground"),
        ({"inputs": ["x"]}, "waves has no input field 'x'"),
        ({"parameters": ["nu"]}, "waves has no parameter 'nu'; it has speed"),
    ],
)
def test_refused(options, message):
    with pytest.raises(IpotError) as caught:
        windows_of(files.trajectories(), **options)
    assert message in str(caught.value)


def test_a_file_without_anything_that_moves():
    source = files.trajectories()
    still = replace(source, fields={"ground": source.fields["ground"]})
    with pytest.raises(DataError, match="has no field that changes in time: name the targets"):
        windows_of(still)


# ---- parts


def frames_of(windows, part):
    """The frames of every trajectory that samples of a part hold."""
    whole = {s.values.numpy().tobytes() + s.truth.numpy().tobytes(): i for i, s in enumerate(part)}
    rows = [
        i
        for i, s in enumerate(windows.data)
        if s.values.numpy().tobytes() + s.truth.numpy().tobytes() in whole
    ]
    assert len(rows) == len(part)
    return {
        (int(windows.owners[i]), frame)
        for i in rows
        for frame in range(windows.starts[i], windows.starts[i] + windows.span)
    }


@pytest.mark.parametrize(
    ("count", "frames", "options"),
    [
        (1, 40, {"history": 3, "lead": 2}),
        (1, 40, {"history": 1, "lead": 1, "stride": 1}),
        (1, 40, {"history": 2, "lead": 2, "every": 3}),
        (3, 9, {}),
        (30, 9, {"lead": 2}),
    ],
)
def test_parts_share_no_frame(tmp_path, count, frames, options):
    path = files.well(tmp_path / "w.h5", count=count, frames=frames)
    source = open_data(path, **options)
    windows = windows_of(read_cases(path), **options)
    parts = [p for p in source.parts if p is not None]
    held = [frames_of(windows, part) for part in parts]
    for i, one in enumerate(held):
        assert one
        for other in held[:i]:
            assert not one & other
    assert (source.parts[2] is not None) == (count == 30)
    if count > 1:
        assert sum(map(len, parts)) == len(source.data)


def test_one_trajectory_that_is_too_short_to_be_split(tmp_path):
    path = files.well(tmp_path / "w.h5", count=1, frames=6)
    with pytest.raises(DataError, match="share so many frames that none are left to validate on"):
        open_data(path, history=4, lead=1)


# ---- forecasts


def test_the_last_frames_are_asked_with():
    source = files.trajectories()
    columns = windows_of(source, targets=["h"], history=2, every=3).columns
    given = latest(source, columns)
    h = source.fields["h"]
    assert given["values"].shape == (4, 12, 2)
    np.testing.assert_allclose(given["values"][1, :, 0], h.read(1)[5, :, 0], rtol=1e-6)
    np.testing.assert_allclose(given["values"][1, :, 1], h.read(1)[8, :, 0], rtol=1e-6)
    assert given["parameters"].shape == (4, 1)
    np.testing.assert_allclose(after(source, columns, 2), source.times[-1] + [1.5, 3.0])
    short = files.trajectories(frames=3)
    with pytest.raises(DataError, match="has 3 frames, and the model takes 2, 3 apart"):
        latest(short, columns)


def test_a_forecast_is_a_file_of_the_same_kind(tmp_path):
    source = files.trajectories()
    columns = windows_of(source).columns
    answer = tiny.random().random((4, 2, 12, 3)).astype(np.float32)
    write_well(tmp_path / "out.h5", carried_on(source, columns, answer))
    back = read_cases(tmp_path / "out.h5")
    assert back.times.tolist() == [4.5, 5.0]
    np.testing.assert_array_equal(back.points, source.points)
    np.testing.assert_array_equal(back.fields["h"].read(3), answer[3, :, :, :1])
    np.testing.assert_array_equal(back.fields["wind"].read(1), answer[1, :, :, 1:])
    assert back.units["wind"] == "m/s"
