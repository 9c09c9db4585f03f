"""Settings that make no sense are refused by name, and not taken for others."""

from dataclasses import replace

import pytest
from jaxtyping import TypeCheckError

from ipot.errors import Unsupported
from ipot.training.settings import Training
from training.toys import SPEC, fit, model

NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", -3),
        ("batch", 0),
        ("learning_rate", 0.0),
        ("learning_rate", -1e-3),
        ("learning_rate", NAN),
        ("learning_rate", float("inf")),
        ("weight_decay", -0.1),
        ("step_epochs", 0),
        ("minutes", 0.0),
        ("minutes", NAN),
        ("points", 0.0),
        ("points", 1.1),
        ("queries", -0.5),
        ("queries", NAN),
        ("average", 0.0),
        ("average", 1.0),
        ("clip", 0.0),
        ("clip", NAN),
        ("warmup", -0.1),
        ("warmup", 1.0),
        ("workers", -1),
        ("validate_every", -1),
        ("save_seconds", -1.0),
    ],
)
def test_refused(name, value):
    with pytest.raises(Unsupported, match=rf"training\.{name}.*{value}"):
        Training(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("schedule", "linear"), ("precision", "float16"), ("step", "fast")]
)
def test_choices_that_do_not_exist(name, value):
    """Where shapes and types are checked, the checker is the first to say so."""
    with pytest.raises((Unsupported, TypeCheckError), match=name):
        Training(**{name: value})


def test_the_edges_are_allowed():
    edges = {"points": 1.0, "queries": 1e-6, "average": 0.999, "warmup": 0.0, "workers": 0}
    settings = Training(clip=None, minutes=None, **edges)
    assert {name: getattr(settings, name) for name in edges} == edges


def test_a_symmetry_asked_for_where_there_is_none_is_refused_before_training(tmp_path):
    with pytest.raises(Unsupported, match="lists no symmetry"):
        fit(tmp_path, network=model(replace(SPEC, symmetries=())), augment=True)
    assert list(tmp_path.iterdir()) == []
