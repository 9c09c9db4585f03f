import pytest

from ipot.native import build


@pytest.fixture
def anew(monkeypatch, tmp_path):
    """As on a machine where nothing was compiled yet, and as before behind it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(build.OFF, raising=False)
    quick = tuple("-O0" if flag == "-O3" else flag for flag in build.FLAGS)
    monkeypatch.setattr(build, "FLAGS", quick)
    build._tried.cache_clear()
    yield tmp_path / "ipot" / "native"
    build._tried.cache_clear()
