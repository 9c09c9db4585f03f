"""The attack by requests finds what is broken on purpose, and nothing where all is well."""

import pytest

from campaign.attack import Lost, Place, nth_case
from campaign.attacks import _requests as requests
from campaign.attacks import serve
from campaign.attacks._mutate import MUTATORS
from ipot.errors import DataError

pytestmark = pytest.mark.plain

attack = serve.Requests()
if reason := attack.possible():
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    attack.warm()
    attack.prepare(folder)
    attack.load(folder)
    return folder


def status(case, *given, **how):
    """The status that a case is refused with; None where it is not."""
    try:
        case(*given, **how)
    except DataError as error:
        return int(str(error)[:3])
    return None


@pytest.fixture
def tried(shared, tmp_path):
    """Try a case in this process."""

    def run(request, *changes, rudely=False):
        case = {"request": request, "changes": list(changes), "rudely": rudely}
        attack.run(case, Place(shared, tmp_path))

    return run


def test_right_requests_are_answered(shared, tried):
    assert set(serve.NAMED) == {*attack._right} - {
        f"/v1/models/{m}/samples/0" for m in requests.MODELS
    }
    for name, request in attack._right.items():
        named = serve.NAMED.get(name, request)
        assert bool(named.body) == bool(request.body)
        assert named.ending == request.ending
        none = 501 if name == "solve" else 404 if "samples" in name else None
        assert status(tried, name) == none


def test_every_change_can_be_drawn_and_made(shared, tried):
    drawn = {change[1] for i in range(3000) for change in nth_case(attack, 0, i)["changes"]}
    known = {name for names in requests.KNOWING.values() for name in names}
    assert drawn >= {*requests.CHANGES, *requests.WHOLE, *known}
    assert known <= set(MUTATORS)
    for name in requests.CHANGES:
        found = {status(tried, "mesh True json", ["request", name, n]) for n in range(8)}
        assert found - {None, 500} or name == "chunks"


def test_what_is_no_whole_request_is_left(tried):
    for name in requests.WHOLE:
        for n in range(10):
            status(tried, "mesh True npz", ["bytes", name, n], rudely=n % 2 == 0)
    assert not serve._is_whole(b"")
    assert not serve._is_whole(b"GET / HTTP/1.1\r\nHost: x\r\n")
    assert not serve._is_whole(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc")
    assert serve._is_whole(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert serve._is_whole(b"hello\r\n\r\n")


WRONG = ["request", "another body", 1]


@pytest.mark.parametrize(
    ("broken", "by", "said"),
    [
        ("ipot.serve.routes.read_question", lambda *given: 1 / 0, "it failed"),
        ("ipot.serve.application.error_body", lambda refused: b"oh", "not JSON"),
        ("ipot.serve.application.error_body", lambda refused: b'{"error": "a"}', "another form"),
        ("ipot.serve.application.error_headers", lambda refused: {"a": "b"}, "of the kind"),
        ("ipot.serve.gate.HEADERS", (), "without a policy"),
        ("ipot.serve.gate.Held.release", lambda self: None, "something is left"),
    ],
)
def test_what_is_broken_is_found(tried, monkeypatch, broken, by, said):
    monkeypatch.setattr(serve, "PATIENCE", 2.0)
    if "read_question" in broken:
        whole = serve.Running.goes_on
        monkeypatch.setattr(serve.Running, "goes_on", lambda self: None)
    monkeypatch.setattr(broken, by)
    if "release" in broken:
        monkeypatch.setattr("ipot.serve.gate.Held.take", lambda self, size: self.room.take(size))
    with pytest.raises(Lost, match=said):
        tried("mesh True json", WRONG)
    monkeypatch.undo()
    if "read_question" in broken:
        assert serve.Running.goes_on is whole
    attack._running = None  # the next one has a server of its own


def test_a_server_that_does_not_go_on_is_found(tried, monkeypatch):
    tried("/healthz")
    monkeypatch.setattr(serve, "PATIENCE", 2.0)
    attack._running.server.worker.stop(5.0)
    with pytest.raises(Lost, match=r"it answers otherwise afterwards|it does not go on"):
        tried("/healthz")
    attack._running = None
