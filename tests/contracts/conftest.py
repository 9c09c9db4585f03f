"""Every problem and every model of the registry, by fixtures that parametrise themselves."""

import ast
from functools import cache

import pytest

from ipot import registry
from ipot.models.base import Operator
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


@cache
def _built(case: str, name: str, changes: str) -> Operator:
    return CASES[case]().build(name, ast.literal_eval(changes))


@pytest.fixture
def model(request, case, variant) -> Operator:
    """The model for the case, built once for all tests that leave its weights as they are."""
    name, changes = variant
    model = _built(request.node.callspec.params["case"], name, repr(changes))
    model.zero_grad()
    return model


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """A store for tests that only look at what is in it, so that data are generated once."""
    return tmp_path_factory.mktemp("shelf")
