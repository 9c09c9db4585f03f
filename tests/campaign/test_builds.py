"""Kills of first uses that compile find what is broken on purpose."""

import pytest

from campaign.attack import Lost, Place
from campaign.attacks import _builds, _prepared, builds
from ipot.native import build

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
