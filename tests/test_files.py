"""Files are whole or absent."""

import json
import os

import pytest

from ipot import files


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a" / "result.json"
    files.write_json(path, {"x": 1})

    def half() -> None:
        with files.atomic(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power"):
        half()
    assert json.loads(path.read_text()) == {"x": 1}
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]


def test_nothing_appears_under_the_name_before_the_end(tmp_path):
    path = tmp_path / "weights"
    with files.atomic(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.parent == path.parent
    assert path.read_text() == "new"


def test_a_failing_replace_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    files.write_text(path, "old")

    def refuse(*_):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_text(tmp_path / "a", "x")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_free_bytes_of_a_folder_that_does_not_exist_yet(tmp_path):
    assert files.free_bytes(tmp_path / "not" / "yet") > 0
