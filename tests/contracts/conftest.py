"""Every problem and every model of the registry, by fixtures that parametrise themselves."""

import pytest

from ipot import registry
from ipot.problems.base import Problem

from .cases import CASES, Case, model_variants, tiny


@pytest.fixture(params=registry.names("problems"))
def problem(request) -> Problem:
    """A problem at small sizes."""
    return tiny(registry.find("problems", request.param))


@pytest.fixture(params=model_variants())
def variant(request) -> tuple[str, dict]:
    """A model's name and the settings of a variant."""
    return request.param


@pytest.fixture(params=CASES)
def case(request) -> Case:
    """A spec with samples."""
    return CASES[request.param]()


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """A store for tests that only look at what is in it, so that data are generated once."""
    return tmp_path_factory.mktemp("shelf")
