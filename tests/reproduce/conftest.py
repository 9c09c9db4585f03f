"""Records as a run of a job would leave them."""

import json

import pytest

from ipot.recipes import ledger
from ipot.reproduce import records
from ipot.reproduce.items import Job
from ipot.reproduce.jobs import Way, settings

PUBLISHED = Way()


@pytest.fixture
def record():
    """A record of a job, without its run."""

    def make(job: Job, tests: dict[str, float], *, seed=0, way=PUBLISHED, **changed):
        made = settings(job, way, seed=seed)
        facts = {
            "id": records.identity(job.name, way, seed),
            "job": job.name,
            "way": way.words,
            "seed": seed,
            "numerics": records.NUMERICS,
            "data_version": made.problem.version,
            "machine": "a machine",
            "commit": "abc",
            "date": "2026-11-18",
            "outcome": records.ENDED,
            "epochs": 10,
            "seconds": 30.0,
            "gib": 1.0,
            "parameters": 1000,
            "tests": tests,
        }
        whole = json.loads(json.dumps(made.as_dict() | facts | changed))
        return ledger.sealed(whole)

    return make
