"""Published files: what is written is read back, and what is wrong is refused with the reason."""

import numpy as np
import pytest
import scipy.io

from ipot.data import published, readers
from ipot.errors import DataError

random = np.random.default_rng(0)
FIELDS = {
    "u": random.standard_normal((5, 4, 3, 2)).astype(np.float32),
    "a": random.standard_normal((5, 4)),
    "kind": np.arange(10, dtype=np.int64).reshape(5, 2),
}
VERSIONS = pytest.mark.parametrize("version", ["5", "7.3"])


def pattern(text):
    """Words that must come in this order, whatever stands between them."""
    return "(?s)" + ".*".join(text.split(" ... "))


@VERSIONS
def test_mat_files_are_read_back_in_matlabs_order(version, tmp_path):
    path = readers.write_mat(tmp_path / "some.mat", FIELDS, version)
    assert readers.mat_shapes(path) == {name: a.shape for name, a in FIELDS.items()}
    found = readers.read_mat(path, ["a", "u"])
    assert list(found) == ["a", "u"]
    for name, array in found.items():
        np.testing.assert_array_equal(array, FIELDS[name])
        assert array.dtype == FIELDS[name].dtype


@VERSIONS
def test_some_rows_are_read_of_every_array(version, tmp_path):
    path = readers.write_mat(tmp_path / "some.mat", FIELDS, version)
    for name, array in readers.read_mat(path, list(FIELDS), rows=slice(1, 4)).items():
        np.testing.assert_array_equal(array, FIELDS[name][1:4])


def test_version_73_is_what_matlab_writes(tmp_path):
    """HDF5 behind a block of 512 bytes that begins with MATLAB's header, axes reversed."""
    import h5py

    path = readers.write_mat(tmp_path / "some.mat", FIELDS, "7.3")
    head = path.read_bytes()[:520]
    assert head.startswith(b"MATLAB 7.3 MAT-file")
    assert head[124:128] == b"\x00\x02IM"
    assert head[512:520] == readers.SIGNATURE
    with h5py.File(path) as file:
        assert file["u"].shape == (2, 3, 4, 5)
        assert file["u"].attrs["MATLAB_class"] == b"single"
        assert file["a"].attrs["MATLAB_class"] == b"double"
    with pytest.raises(NotImplementedError):
        scipy.io.loadmat(path)


def test_bare_hdf5_and_compressed_files_are_read_too(tmp_path):
    import h5py

    with h5py.File(tmp_path / "bare.mat", "w") as file:
        file["u"] = FIELDS["u"].T
    scipy.io.savemat(tmp_path / "packed.mat", FIELDS, do_compression=True)
    for name in ("bare.mat", "packed.mat"):
        found = readers.read_mat(tmp_path / name, ["u"])["u"]
        np.testing.assert_array_equal(found, FIELDS["u"])


@VERSIONS
def test_a_missing_array_is_named_with_those_that_are_there(version, tmp_path):
    path = readers.write_mat(tmp_path / "some.mat", FIELDS, version)
    with pytest.raises(DataError, match=pattern(r"some\.mat has no array sol; ... a \(5, 4\)")):
        readers.read_mat(path, ["u", "sol"])


@VERSIONS
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_truncated_mat_files_are_refused(version, share, tmp_path):
    arrays = {"u": np.ones((50, 80)), "v": np.ones((50, 80))}
    path = readers.write_mat(tmp_path / "some.mat", arrays, version)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=r"some\.mat .*cut short"):
        readers.read_mat(path, ["u"])


def test_truncated_compressed_mat_files_are_refused(tmp_path):
    path = tmp_path / "some.mat"
    scipy.io.savemat(path, {"u": random.standard_normal((50, 80))}, do_compression=True)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(DataError, match=r"some\.mat .*cut short"):
        readers.read_mat(path, ["u"])


@pytest.mark.parametrize("content", [b"<html>not found</html>" * 40, b"\x00" * 600])
def test_files_of_another_kind_are_refused(content, tmp_path):
    for name in ("some.mat", "some.npy"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"some\.mat .*fetch or write it again"):
        readers.read_mat(tmp_path / "some.mat", ["u"])
    with pytest.raises(DataError, match=r"some\.npy .*fetch or write it again"):
        readers.read_npy(tmp_path / "some.npy")


def test_arrays_of_no_numbers_are_refused(tmp_path):
    scipy.io.savemat(tmp_path / "some.mat", {"u": np.array(["a", "b"]), "c": np.ones(2) * 1j})
    for name in ("u", "c"):
        with pytest.raises(DataError, match=rf"{name} of .*some\.mat must be .* real numbers"):
            readers.read_mat(tmp_path / "some.mat", [name])


def test_what_version_5_cannot_hold_is_refused_before_it_is_written(tmp_path):
    huge = np.broadcast_to(np.float64(1), (2**14, 2**14))
    with pytest.raises(DataError, match=pattern(r'some\.mat: u takes 2 GiB ... "7\.3"')):
        readers.write_mat(tmp_path / "some.mat", {"u": huge})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("large", [False, True])
def test_npy_files_are_read_back_and_large_ones_are_mapped(large, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LARGE", 10 if large else 10**6)
    path = readers.write_npy(tmp_path / "some.npy", FIELDS["u"])
    found = readers.read_npy(path)
    np.testing.assert_array_equal(found, FIELDS["u"])
    assert isinstance(found, np.memmap) == large
    found[0] = 0
    np.testing.assert_array_equal(readers.read_npy(path), FIELDS["u"])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 0.99])
@pytest.mark.parametrize("large", [False, True])
def test_truncated_npy_files_are_refused(share, large, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LARGE", 0 if large else 10**6)
    path = readers.write_npy(tmp_path / "some.npy", np.ones((20, 30)))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=r"some\.npy .*cut short"):
        readers.read_npy(path)


def test_pickles_and_archives_are_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}, "a"], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"objects\.npy"):
        readers.read_npy(tmp_path / "objects.npy")
    np.savez(tmp_path / "archive.npz", u=np.ones(3))
    with pytest.raises(DataError, match=r"archive\.npz is an archive"):
        readers.read_npy(tmp_path / "archive.npz")


def test_numbers_come_in_the_machines_byte_order(tmp_path):
    np.save(tmp_path / "big.npy", np.arange(3, dtype=">f4"))
    assert readers.read_npy(tmp_path / "big.npy").dtype == np.float32
    assert readers.read_npy(tmp_path / "big.npy").dtype.isnative


def test_a_missing_file_is_named_with_what_is_there(tmp_path):
    for index in range(10):
        (tmp_path / f"{index}.txt").touch()
    says = pattern(
        rf"{tmp_path} has no file u\.mat or v\.mat; ... 0\.txt, ... and 2 more ... files"
    )
    with pytest.raises(DataError, match=says):
        readers.require(tmp_path / "u.mat", "v.mat")
    (tmp_path / "v.mat").touch()
    assert readers.require(tmp_path / "u.mat", "v.mat") == tmp_path / "v.mat"
    with pytest.raises(DataError, match=pattern(r"folder .*none, ... u\.mat ... is not there")):
        readers.require(tmp_path / "none" / "u.mat")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds nothing"):
        readers.require(tmp_path / "empty" / "u.mat")


def test_shapes_are_checked_with_wildcards(tmp_path):
    path, array = tmp_path / "u.mat", np.ones((5, 4, 3))
    assert readers.expect(path, "u", array, (None, 4, 3)) is array
    with pytest.raises(DataError, match=r"u of .*u\.mat .* \(any, 3, 3\), got \(5, 4, 3\)"):
        readers.expect(path, "u", array, (None, 3, 3))
    with pytest.raises(DataError, match=r"\(any, 4\), got \(5, 4, 3\)"):
        readers.expect(path, "u", array, (None, 4))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_with_their_place(bad, tmp_path):
    array = np.ones((5, 4, 3))
    array[3, 1, 2] = bad
    with pytest.raises(DataError, match=r"sol of .*u\.mat .*index \(3, 1, 2\)"):
        readers.expect(tmp_path / "u.mat", "sol", array, (None, 4, 3))
    readers.expect(tmp_path / "u.mat", "sol", array, (None, 4, 3), finite=False)
    readers.expect(tmp_path / "u.mat", "kind", np.ones((2, 2), dtype=int), (2, 2))


def test_a_split_has_so_many_rows_and_no_more(tmp_path):
    assert published.take(tmp_path, "test", 3, range(5, 8)) == slice(5, 8)
    with pytest.raises(
        DataError, match=pattern("has 3 samples for the test split ... 4 ... --count.test")
    ):
        published.take(tmp_path, "test", 4, range(5, 8))


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()
    for write in (
        lambda path: readers.write_mat(path, FIELDS),
        lambda path: readers.write_npy(path, FIELDS["u"]),
    ):
        with pytest.raises(DataError, match=r"cannot write .*file/x"):
            write(tmp_path / "file" / "x")


def test_numbers_that_float32_does_not_hold_are_refused(tmp_path):
    """Samples are held in float32, where they would become infinite."""
    array = np.array([[1.0, 1e38], [1e300, 2.0]])
    with pytest.raises(DataError, match=r"u of .*not finite.*1e\+300.*\(1, 0\)"):
        readers.expect(tmp_path / "a.mat", "u", array, (2, 2))
    readers.expect(tmp_path / "a.mat", "u", array[:1], (1, 2))


def test_an_array_of_an_unknown_class_is_refused(tmp_path):
    path = readers.write_mat(tmp_path / "some.mat", {"a": np.ones((2, 2))})
    content = bytearray(path.read_bytes())
    content[128 + 16] = 99  # the class in the flags of the first array
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"some\.mat"):
        readers.read_mat(path, ["a"])
