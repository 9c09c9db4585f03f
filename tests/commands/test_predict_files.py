"""`predict` from and to files that are mapped, through the command and through Python."""

import numpy as np
import pytest

import ipot
from ipot.formats import numpy_files as arrays
from ipot.surrogate import answers, arguments


@pytest.fixture
def case(tmp_path):
    random = np.random.default_rng(0)
    arrays = {
        "points": random.random((40, 2)),
        "values": random.choice([3.0, 12.0], (40, 1)).astype(np.float32),
        "queries": random.random((7, 2)).astype(np.float32),
    }
    (tmp_path / "case").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "case" / f"{name}.npy", array)
    return arrays


def test_a_folder_in_and_a_file_out(run, case, tmp_path, ask):
    expected = ipot.load(run).predict(**case)
    flags = [str(tmp_path / "case"), "--out", str(tmp_path / "a.npy"), "--rows", "3"]
    said = ask("predict", run, *flags)
    written = np.load(tmp_path / "a.npy")
    assert said["shape"] == list(written.shape) == [1, 7, 1]
    assert said["maximum"] == written.max()
    assert written.dtype == np.float32
    np.testing.assert_allclose(written, expected, rtol=1e-5, atol=1e-6)
    assert {p.name for p in tmp_path.iterdir()} == {"case", "a.npy"}


def test_mapped_arrays_are_not_loaded(run, case, tmp_path, monkeypatch):
    """They are the tensors that the model is asked with, whatever their precision."""
    surrogate = ipot.load(run)
    mapped = {n: np.load(tmp_path / "case" / f"{n}.npy", mmap_mode="r") for n in case}
    seen = []
    before = answers.predict

    def spy(model, batch, **terms):
        for name, array in mapped.items():
            assert getattr(batch, name).numpy().dtype == array.dtype
        seen.append({name: getattr(batch, name).data_ptr() for name in mapped})
        return before(model, batch, **terms)

    monkeypatch.setattr(answers, "predict", spy)
    place = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, (1, 7, 1))
    assert surrogate.predict(**mapped, rows=5, out=place) is place
    assert seen == [{name: array.ctypes.data for name, array in mapped.items()}]
    place.flush()
    monkeypatch.undo()
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy"), surrogate.predict(**case), rtol=1e-5, atol=1e-6
    )


def test_a_place_that_is_not_finite_is_counted_over_all_pieces(run, case, monkeypatch):
    monkeypatch.setattr(arguments, "CHECKED_AT_ONCE", 16)
    case["values"][37, 0] = np.inf
    with pytest.raises(ipot.errors.DataError, match=r"values holds.* at \(37, 0\)"):
        ipot.load(run).predict(**case)


def test_arrays_of_any_kind_are_taken(run, case):
    surrogate = ipot.load(run)
    expected = surrogate.predict(**case)
    turned = {
        "points": np.asfortranarray(case["points"]),
        "values": case["values"].astype(np.int64)[::-1][::-1],
        "queries": case["queries"].astype(">f4"),
    }
    np.testing.assert_allclose(surrogate.predict(**turned), expected, rtol=1e-5, atol=1e-6)
    # A model without parameters may be told that there are none.
    np.testing.assert_array_equal(surrogate.predict(**case, parameters=np.zeros(0)), expected)


@pytest.mark.plain
def test_what_goes_wrong_leaves_no_file(run, case, tmp_path, fails, monkeypatch):
    folder, out = str(tmp_path / "case"), str(tmp_path / "a.npy")
    flags = ["predict", run, folder]
    assert "a.txt" in fails(*flags, "--out", str(tmp_path / "a.txt"))
    assert "at least 1, got 0" in fails(*flags, "--out", out, "--rows", "0")
    assert "at least 1, got 0" in fails(*flags, "--out", out, "--steps", "0")
    assert "no .npy file" in fails("predict", run, str(tmp_path), "--out", out)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    assert "cannot write" in fails(*flags, "--out", out)
    assert {p.name for p in tmp_path.iterdir()} == {"case"}


def test_the_answer_is_not_written_over_the_input(run, case, tmp_path, fails):
    folder = tmp_path / "case"
    for output in (folder / "queries.npy", folder / "values.npy"):
        said = fails("predict", run, str(folder), "--out", str(output))
        assert "is among the inputs" in said
    np.savez(tmp_path / "case.npz", **case)
    both = str(tmp_path / "case.npz")
    assert "is among the inputs" in fails("predict", run, both, "--out", both)
    for name, array in case.items():
        np.testing.assert_array_equal(np.load(folder / f"{name}.npy"), array)
        np.testing.assert_array_equal(np.load(both)[name], array)


def test_precision_is_a_choice(run, case):
    surrogate = ipot.load(run)
    exact, rounded = (surrogate.predict(**case, precision=p) for p in ("float32", "bf16"))
    assert rounded.dtype == np.float32
    assert not np.array_equal(rounded, exact)
    assert np.linalg.norm(rounded - exact) < 0.05 * np.linalg.norm(exact)
    with pytest.raises(ipot.errors.Unsupported, match="float32 or bf16"):
        surrogate.predict(**case, precision="half")
