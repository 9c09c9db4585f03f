"""Whether data are of the kind that a model was trained on, and places as it counts them."""

from __future__ import annotations

from dataclasses import replace

import torch

from ipot.errors import DataError
from ipot.nn.globe import GLOBAL
from ipot.samples import Batch, Sample
from ipot.spec import Spec


def refuse_other_kind(spec: Spec, given: Spec) -> None:
    """Refuse data of other channels, coordinates or places than those of the model."""
    for name in ("inputs", "outputs", "parameters"):
        own, other = getattr(spec, name), getattr(given, name)
        # Data without names count by their order; the same names in another order do not.
        if len(own) != len(other) or (own != other and set(own) == set(other)):
            raise DataError(
                f"the model has {len(own)} {name} ({', '.join(own) or 'none'}), the data "
                f"{len(other)} ({', '.join(other) or 'none'})"
            )
    for name, words in (
        ("dimension", "coordinates of a point"),
        ("query_dimension", "coordinates of a query"),
    ):
        own, other = getattr(spec, name), getattr(given, name)
        if own != other:
            raise DataError(f"the model has {own} {words}, the data {other}")
    if spec.geographic != given.geographic:
        raise DataError(
            "longitude and latitude: the model and the data must both have them, or neither "
            "(geographic=True)"
        )


def refuse_other_sample(spec: Spec, sample: Sample) -> None:
    """Refuse a sample of other channels or coordinates than the model's."""
    try:
        spec.check(sample)
    except DataError as error:
        raise DataError(f"sample is not of the model's kind: {error}") from error


def turned(batch: Batch, spec: Spec) -> tuple[Batch, Spec]:
    """Queries and facts to look for places outside by: a longitude may be 350 or -10 degrees,
    and nothing lies outside of the whole way around."""
    if not spec.geographic:
        return batch, spec
    (west, east), *_ = spec.query_domain
    if east - west >= GLOBAL[0]:
        return batch, replace(spec, query_periods=(360.0, *spec.query_periods[1:]))
    longitude, middle = batch.queries[..., :1], (west + east) / 2
    nearer = longitude - 360.0 * torch.round((longitude - middle) / 360.0)
    return replace(batch, queries=torch.cat([nearer, batch.queries[..., 1:]], -1)), spec
