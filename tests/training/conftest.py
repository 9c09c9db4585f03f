import pytest

from ipot.training import journal


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    """It takes seconds to import, and is a copy of the journal."""
    monkeypatch.setattr(journal, "_tensorboard", lambda folder: None)
