"""Labelled arrays become the samples that they should."""

import numpy as np
import torch

from ipot.data.climatology import phase
from ipot.data.dataset import Ragged, Stacked
from ipot.formats.series.samples import from_xarray
from ipot.spec import Need

from .labelled_data import days, forecast, grid, stations, xr


class TestWindows:
    def test_frames_go_in_oldest_first_and_the_next_come_out(self):
        data = grid(12)
        dataset, series = forecast(data, history=3, lead=2)
        assert len(dataset) == 12 - 5 + 1
        frames = data.t2m.values.reshape(12, -1)
        for i, sample in enumerate(dataset):
            np.testing.assert_array_equal(sample.values.numpy(), frames[i : i + 3].T)
            np.testing.assert_array_equal(sample.truth.numpy()[..., 0], frames[i + 3 : i + 5])
        assert dataset[0].times == (1.0, 2.0)
        assert (dataset.spec.history, dataset.spec.steps, dataset.spec.dt) == (3, 2, 1.0)
        assert dataset.spec.inputs == ("t2m(t-2)", "t2m(t-1)", "t2m(t)")
        assert dataset.spec.units == ("K",)
        assert series.starts.tolist() == list(range(8))

    def test_points_are_longitude_and_latitude_in_the_order_of_rows(self):
        dataset, series = forecast(grid(5))
        sample = dataset[0]
        assert isinstance(dataset.data, Stacked)
        assert sample.grid == sample.query_grid == (3, 4)
        assert sample.points[:5].tolist() == [[0, 60], [10, 60], [20, 60], [30, 60], [0, 50]]
        assert dataset.spec.geographic
        assert series.geographic
        assert not series.wraps
        assert {Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS, Need.HISTORY} <= (
            dataset.spec.provides
        )

    def test_several_variables_go_frame_by_frame_with_static_ones_behind(self):
        data = grid(6, variables=("u", "v"))
        data["height"] = (("latitude", "longitude"), np.arange(12.0).reshape(3, 4))
        dataset, _ = from_xarray(
            data, inputs=("u", "v"), targets=("u", "v"), history=2, static="height"
        )
        assert dataset.spec.inputs == ("u(t-1)", "v(t-1)", "u(t)", "v(t)", "height")
        u, v = (data[n].values.reshape(6, -1) for n in "uv")
        expected = np.stack([u[1], v[1], u[2], v[2], np.arange(12)], 1)
        np.testing.assert_array_equal(dataset[1].values, expected)
        np.testing.assert_array_equal(dataset[1].truth[0], np.stack([u[3], v[3]], 1))
        assert dataset.spec.history == 2
        same, _ = from_xarray(data, inputs=("u", "v", "height"), targets=("u", "v"), history=2)
        assert torch.equal(same[1].values, dataset[1].values)

    def test_past_frames_count_as_history_only_where_they_are_what_comes_out(self):
        data = grid(6, variables=("u", "v"))
        dataset, _ = from_xarray(data, inputs=("u", "v"), targets="u", history=2)
        assert dataset.spec.history == 0
        dataset, _ = from_xarray(data, inputs=("v", "u"), targets=("u", "v"), history=2)
        assert dataset.spec.history == 0

    def test_a_lead_of_zero_answers_at_the_time_of_the_last_input(self):
        data = grid(6, variables=("u", "v"))
        dataset, _ = from_xarray(data, inputs="u", targets="v", history=2, lead=0)
        assert len(dataset) == 5
        assert dataset[0].times == (1.0,)
        np.testing.assert_array_equal(dataset[0].truth[0, :, 0], data.v.values[1].ravel())
        assert dataset.spec.history == 0

    def test_every_and_stride(self):
        data = grid(20)
        dataset, series = forecast(data, history=2, lead=1, every=3, stride=2)
        frames = data.t2m.values.reshape(20, -1)
        assert len(dataset) == 3  # frames 0 3 6, 6 9 12, 12 15 18
        np.testing.assert_array_equal(dataset[1].values, frames[[6, 9]].T)
        np.testing.assert_array_equal(dataset[1].truth[0, :, 0], frames[12])
        assert series.starts.tolist() == [0, 2, 4]

    def test_dimensions_in_any_order_give_the_same_samples(self):
        data = grid(8)
        straight, _ = forecast(data, history=2)
        turned, _ = forecast(data.transpose("longitude", "time", "latitude"), history=2)
        assert torch.equal(straight[3].values, turned[3].values)
        assert torch.equal(straight[3].points, turned[3].points)

    def test_unsorted_times_are_sorted(self):
        data = grid(9)
        order = np.random.default_rng(0).permutation(9)
        straight, _ = forecast(data, history=2)
        mixed, _ = forecast(data.isel(time=order), history=2)
        assert all(torch.equal(a.values, b.values) for a, b in zip(straight, mixed, strict=True))
        assert all(torch.equal(a.truth, b.truth) for a, b in zip(straight, mixed, strict=True))

    def test_windows_do_not_reach_across_gaps(self):
        data = grid(20)
        dataset, series = forecast(data.isel(time=[*range(8), *range(10, 20)]), history=2, lead=1)
        # Three frames in a row: 6 windows before the gap, 8 behind it, of 18 without one.
        assert len(dataset) == 14
        assert "4 of 18 windows" in series.notes[0]
        assert series.starts.tolist() == [*range(6), *range(10, 18)]

    def test_at_most_so_many_samples_evenly_spread(self):
        dataset, series = forecast(grid(21), max_samples=5)
        assert len(dataset) == 5
        assert series.starts.tolist() == [0, 5, 10, 14, 19]
        assert "5 of 20" in series.notes[0]


class TestMissing:
    def test_places_that_never_have_values_are_left_out(self):
        data = grid(8)
        land = np.zeros((3, 4), bool)
        land[1, 2] = land[0, 0] = True
        dataset, series = forecast(data.where(~xr.DataArray(land, dims=("latitude", "longitude"))))
        assert isinstance(dataset.data, Stacked)
        assert len(dataset[0].points) == 10
        assert dataset[0].grid is None
        np.testing.assert_array_equal(
            dataset[3].values[:, 0], data.t2m.values[3].ravel()[~land.ravel()]
        )
        assert [20.0, 50.0] not in dataset[0].points.tolist()
        np.testing.assert_array_equal(series.places.used, ~land.ravel())
        assert "2 of 12 input places never have all values" in series.notes

    def test_places_that_miss_a_value_are_left_out_of_that_sample(self):
        data = stations(8)
        values = data.t2m.values.copy()
        values[3, 1] = np.nan
        dataset, series = forecast(
            data.assign(t2m=(("time", "station"), values)), history=2, lead=1
        )
        assert isinstance(dataset.data, Ragged)
        inputs = [len(s.points) for s in dataset]
        targets = [s.queries.shape[0] for s in dataset]
        assert inputs == [5, 5, 4, 4, 5, 5]
        assert targets == [5, 4, 5, 5, 5, 5]
        rows = [0, 2, 3, 4]
        np.testing.assert_array_equal(dataset[2].values, values[2:4, rows].T)
        np.testing.assert_array_equal(dataset[1].truth[0, :, 0], values[3, rows])
        assert torch.equal(dataset[2].points, dataset[0].points[rows])
        assert dataset[2].points is dataset[3].points
        assert any("missing at other places" in n for n in series.notes)

    def test_a_target_that_misses_one_of_its_frames_is_left_out(self):
        data = stations(6)
        data["t2m"][5, 2] = np.nan
        dataset, _ = forecast(data, history=2, lead=3)
        assert [len(s.queries) for s in dataset] == [5, 4]
        expected = data.t2m.values[3:6, [0, 1, 3, 4]]
        np.testing.assert_array_equal(dataset[1].truth[..., 0], expected)

    def test_samples_without_anything_are_left_out(self):
        data = grid(10)
        data["t2m"][4] = np.nan
        dataset, series = forecast(data, history=1, lead=1)
        assert series.starts.tolist() == [0, 1, 2, 5, 6, 7, 8]
        assert "2 of 9 samples" in series.notes[0]
        np.testing.assert_array_equal(dataset[3].values[:, 0], data.t2m.values[5].ravel())

    def test_infinity_is_missing(self):
        data = grid(5)
        data["t2m"][:, 0, 0] = np.inf
        dataset, _ = forecast(data)
        assert len(dataset[0].points) == 11

    def test_final_and_preliminary_data_of_one_file_are_one_series(self):
        data = grid(8)
        late = xr.DataArray(np.arange(8) >= 5, dims="time")
        both = xr.concat([data.where(~late), data.where(late)], dim="expver")
        both = both.assign_coords(expver=[1, 5]).transpose("time", "expver", ...)
        plain, _ = forecast(data)
        dataset, _ = forecast(both)
        assert len(dataset) == 7
        assert all(torch.equal(a.values, b.values) for a, b in zip(plain, dataset, strict=True))


class TestSamples:
    def test_samples_without_time(self):
        random = np.random.default_rng(0)
        data = xr.Dataset(
            {
                "a": (("sample", "x", "y"), random.random((6, 3, 2))),
                "u": (("sample", "x", "y"), random.random((6, 3, 2))),
                "nu": ("sample", random.random(6)),
            },
            coords={"x": [0.0, 0.5, 1.0], "y": [0.0, 1.0]},
        )
        dataset, series = from_xarray(data, inputs=("a", "nu"), targets="u")
        assert len(dataset) == 6
        assert dataset.spec.inputs == ("a",)
        assert dataset.spec.parameters == ("nu",)
        assert dataset.spec.history == 0
        sample = dataset[4]
        np.testing.assert_allclose(sample.values[:, 0], data.a.values[4].ravel(), rtol=1e-6)
        np.testing.assert_allclose(sample.truth[0, :, 0], data.u.values[4].ravel(), rtol=1e-6)
        np.testing.assert_allclose(sample.parameters, data.nu.values[4:5], rtol=1e-6)
        assert series.clock is None
        alone, _ = from_xarray(data, inputs="nu", targets="u")
        assert len(alone[0].points) == 0

    def test_every_member_has_windows_of_its_own(self):
        data = xr.concat([grid(6), grid(6) + 1, grid(6) + 2], dim="run")
        data["seen"] = (("run", "latitude", "longitude"), np.arange(36.0).reshape(3, 3, 4))
        dataset, series = forecast(data, history=2, lead=2, static="seen")
        assert len(dataset) == 9
        assert series.members.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        frames = data.t2m.values.reshape(3, 6, -1)
        np.testing.assert_array_equal(dataset[4].values[:, :2], frames[1, 1:3].T)
        np.testing.assert_array_equal(dataset[4].values[:, 2], np.arange(12, 24))
        np.testing.assert_array_equal(dataset[4].truth[..., 0], frames[1, 3:5])

    def test_numbers_of_every_time_are_parameters(self):
        data = grid(6).assign(co2=("time", np.arange(6.0)))
        dataset, series = from_xarray(data, inputs=("t2m", "co2"), targets="t2m", history=2)
        assert series.scalars == ("co2",)
        assert dataset.spec.parameters == ("co2(t-1)", "co2(t)")
        assert dataset[3].parameters.tolist() == [3.0, 4.0]

    def test_the_season_is_that_of_the_last_input(self):
        dataset, _ = forecast(grid(6), history=2, season=True)
        angle = phase(days(6).astype("datetime64[D]"))[3]
        expected = torch.tensor([np.cos(angle), np.sin(angle)], dtype=torch.float32)
        torch.testing.assert_close(dataset[2].parameters, expected)
