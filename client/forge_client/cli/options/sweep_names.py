"""Sweeps by the start of their names."""

from forge_schema.model.quantities import names_text

from forge_client.backend import Backend
from forge_client.errors import ClientError

MOST_JOBS, SHOWN = 1000, 5


def whole_name(backend: Backend, name: str, owner: str | None) -> str:
    """Return the name of the sweep that a name, or the start of one, means.

    Raises:
        ClientError: it could mean several sweeps.
    """
    if "*" in name or ":" in name or " " in name:
        return name
    jobs = backend.jobs(f"sweep:{name}*", owner=owner or backend.me().owner, count=MOST_JOBS)
    found = list(dict.fromkeys(job.sweep or "" for job in jobs))
    if name in found or not found:
        return name
    if len(found) > 1:
        raise ClientError(
            f"{name!r} could be the sweep {names_text(found, SHOWN, last='or')}",
            hint="write more of its name; `forge sweep list` lists them",
            code="job_ambiguous",
        )
    return found[0]
