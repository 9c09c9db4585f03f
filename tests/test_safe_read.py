"""Files that somebody else wrote: JSON of bounded depth and size, and regular files alone."""

import os

import pytest

from ipot.errors import DataError, RunError
from ipot.safe_read import parse_json, read_bytes, read_json, read_lines, regular_file

DEEP = "[" * 100_000 + "]" * 100_000
ODD = {
    "deep": (DEEP, "lists inside each other"),
    "deep objects": ('{"a":' * 40 + "1" + "}" * 40, "lists inside each other"),
    "twice": ('{"a": 1, "a": 2}', "'a' is there twice"),
    "twice inside": ('{"b": [{"a": 1, "a": 2}]}', "'a' is there twice"),
    "half a character": ('{"a": ["\\ud800"]}', r"a\[0\] is no text"),
    "half a name": ('{"\\ud800": 1}', "a name in it is no text"),
    "many digits": ("1" * 5000, "digits"),
    "zero byte": ("\x00", "Expecting value"),
    "empty": ("", "Expecting value"),
    "two values": ("{} {}", "Extra data"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_json_is_refused_by_file(tmp_path, case):
    text, message = ODD[case]
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(RunError, match=message) as error:
        read_json(file, advice="Do this.")
    assert str(file) in str(error.value)
    with pytest.raises(DataError, match=message):
        parse_json(text, "here", error=DataError)


@pytest.mark.parametrize("content", [b"\xff\xfe{\x00}\x00", b'{"a": "\xff"}'])
def test_bytes_that_are_no_text(content):
    with pytest.raises(RunError, match="cannot read here"):
        parse_json(content, "here")


def test_what_is_let_through():
    assert parse_json(b'\xef\xbb\xbf{"a": [1, 2.5, null, "\xc3\xa9"]}', "") == {
        "a": [1, 2.5, None, "é"]
    }
    nan, infinity = parse_json("[NaN, -Infinity]", "")
    assert nan != nan
    assert infinity == float("-inf")
    assert parse_json("[" * 32 + "]" * 32, "") is not None


def test_a_large_file_is_not_read(tmp_path):
    file = tmp_path / "a.json"
    file.write_bytes(b" " * 101)
    with pytest.raises(RunError, match="larger than 100 bytes: it has 101"):
        read_json(file, most=100)
    with file.open("r+b") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(RunError, match="larger than 16 MiB"):
        read_json(file)
    with pytest.raises(RunError, match="a line of more than 1 MiB"):
        list(read_lines(file))


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_only_regular_files_are_opened(tmp_path, pipe):
    (tmp_path / "link").symlink_to(pipe)
    (tmp_path / "loop").symlink_to("loop")
    cases = {
        pipe: "is a named pipe",
        tmp_path / "link": "is a named pipe",
        tmp_path: "is a folder",
        tmp_path / "loop": "cannot read",
        tmp_path / "zero\0byte": "cannot read",
        type(tmp_path)(os.devnull): "is a device",
    }
    for path, message in cases.items():
        for read in (read_bytes, read_json, lambda p: list(read_lines(p)), regular_file):
            with pytest.raises(RunError, match=message):
                read(path)


def test_links_to_files_are_followed(tmp_path):
    (tmp_path / "blob").write_text("[1]\n")
    (tmp_path / "link").symlink_to("blob")
    assert read_json(tmp_path / "link") == [1]
    assert list(read_lines(tmp_path / "link")) == [b"[1]\n"]
    for read in (read_json, lambda p: list(read_lines(p))):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")
