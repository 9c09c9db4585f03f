import os
import stat

import pytest

from ipot.accelerate.cpu import build

REMEMBERING = """#!/bin/sh
# A compiler that makes an object once: the same command again gets a copy of it.
case " $* " in *" -c "*) ;; *) exec COMPILER "$@";; esac
for word in "$@"; do
  if [ "$last" = -o ]; then out="$word"; else key="$key $word"; fi
  last="$word"
done
kept="FOLDER/$(echo "$key" | cksum | tr ' ' -)"
[ -f "$kept" ] && exec cp "$kept" "$out"
COMPILER "$@" || exit
cp "$out" "$kept.$$" && mv "$kept.$$" "$kept"
"""


@pytest.fixture(scope="session")
def remembering(tmp_path_factory):
    """The machine's compiler, but that it does nothing twice; None where there is none."""
    known = build._compiler_or_none()
    if known is None:
        return None
    base = tmp_path_factory.getbasetemp()
    # The processes of pytest-xdist have folders of their own in a common one.
    objects = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "objects"
    objects.mkdir(exist_ok=True)
    script = tmp_path_factory.mktemp("compiler") / "c++"
    text = REMEMBERING.replace("COMPILER", " ".join(known)).replace("FOLDER", str(objects))
    script.write_text(text)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@pytest.fixture
def anew(monkeypatch, tmp_path, remembering):
    """As on a machine where nothing was compiled yet, and as before behind it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(build.OFF, raising=False)
    if remembering is not None:
        monkeypatch.setenv("CXX", remembering)
    quick = tuple("-O0" if flag == "-O3" else flag for flag in build.FLAGS)
    monkeypatch.setattr(build, "FLAGS", quick)
    build._tried.cache_clear()
    yield tmp_path / "ipot" / "native"
    build._tried.cache_clear()
