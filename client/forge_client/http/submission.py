"""Submit jobs through a server, also one of the version before."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from forge_schema.model.job import SHOWN

from forge_client.errors import ClientError
from forge_client.http.errors import rejected_job
from forge_client.http.transport import Transport


def submitted(transport: Transport, specs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Submit jobs, all or none, and return their ids."""
    # Idempotency keys are generated before the first try, so that a lost answer cannot duplicate
    # jobs.
    stem = uuid4().hex
    jobs = [{"idempotency_key": f"{stem}:{n}", **spec} for n, spec in enumerate(specs)]
    with rejected_job():
        try:
            return _sent(transport, jobs)
        except ClientError as error:
            # A server of the version before does not know all of them.
            if not any(name in error.message and name in job for name in SHOWN for job in jobs):
                raise
            plain = [{name: job[name] for name in job if name not in SHOWN} for job in jobs]
            return _sent(transport, plain)


def _sent(transport: Transport, jobs: Sequence[Mapping[str, Any]]) -> list[int]:
    answer = transport.send("POST", "/api/v1/queue/submit", {"jobs": jobs}, again=True)
    ids: list[int] = transport.field(answer, "job_ids")
    return ids
