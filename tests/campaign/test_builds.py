"""Kills of first uses that compile find what is broken on purpose."""

import os

import pytest

from campaign.attack import Lost, Place
from campaign.attacks import _builds, _compiling, _operations, _prepared, builds
from ipot.accelerate.cpu import build
from ipot.errors import DataError

pytestmark = pytest.mark.plain


@pytest.mark.skipif(builds.Builds().possible() is not None, reason="no C compiler")
def test_a_build_that_never_comes_to_its_end_is_found(tmp_path, monkeypatch):
    (tmp_path / "builds").mkdir()
    _builds.make(tmp_path / "builds")
    place = Place(tmp_path, tmp_path / "scratch")
    place.scratch.mkdir()
    builds.Builds().run({"changes": []}, place)
    _prepared.removed(place.scratch / "cache")

    monkeypatch.setattr(build, "library", lambda: None)
    monkeypatch.setattr(build, "why_not", lambda: "no room")
    with pytest.raises(Lost, match="no library after a kill: refused: RunError: no room"):
        builds.Builds().run({"changes": []}, place)


def test_the_compiler_of_the_machine_is_taken_where_none_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/compiler")
    place = Place(tmp_path, tmp_path)
    assert builds.TrueBuilds().compiler(place) is None
    assert "/no/such/compiler" in builds.TrueBuilds().possible()
    seen = []
    monkeypatch.setattr(build, "library", lambda: seen.append(os.environ["CXX"]) or True)
    for name in ("XDG_CACHE_HOME", build.OFF):  # which the next lines change: pytest puts them back
        monkeypatch.setenv(name, "")
    for compiler in (builds.TrueBuilds().compiler(place), builds.Builds().compiler(place)):
        _builds.work(compiler, tmp_path)()
    assert seen == ["/no/such/compiler", str(tmp_path / "builds" / "compiler")]


def test_a_compiled_training_that_goes_on_otherwise_is_found(tmp_path, monkeypatch):
    # Compiling takes minutes: what is tested is the attack.
    settings = _operations.tiny("burgers", epochs=1)
    monkeypatch.setattr(_compiling.Compiled, "settings", settings)
    (tmp_path / "compiling").mkdir()
    _compiling.make(tmp_path / "compiling")
    place = Place(tmp_path, tmp_path / "scratch")

    def attempt():
        _prepared.removed(place.scratch)
        place.scratch.mkdir()
        builds.Compiling().run({"changes": [{"by": "none"}]}, place)

    attempt()
    other = _operations.tiny("burgers", epochs=1, seed=5)
    monkeypatch.setattr(_compiling.Compiled, "settings", other)
    with pytest.raises(Lost):
        attempt()

    def refuse(*given):
        raise DataError("no compiler")

    monkeypatch.setattr(_compiling.Compiled, "act", refuse)
    with pytest.raises(_prepared.Refused, match="DataError: no compiler"):
        attempt()
