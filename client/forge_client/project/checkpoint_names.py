"""Names of checkpoints as people write them: `7`, `7:1.31`, and `1.31` of a job."""

import re

from forge_client.errors import InvalidInput

OWN_NAME = re.compile(r"[0-9]+\.[0-9]+")
NAME = re.compile(r"(?P<job_id>[0-9]+)(:(?P<attempt>[0-9]+)\.(?P<number>[0-9]+))?")

# The largest numbers that the queue can store.
MOST = {"job_id": 2**63 - 1, "attempt": 32_767, "number": 2_000_000_000}


def parsed(name: object) -> dict[str, int]:
    """Return a checkpoint's name in the queue's form.

    Raises:
        ValueError: it is not the name of a checkpoint.
    """
    match = NAME.fullmatch(str(name).strip())
    if match is None:
        raise ValueError(
            "write a job's id for its newest checkpoint, or JOB:ATTEMPT.NUMBER as"
            " `forge checkpoints JOB` shows them"
        )
    asked = {part: int(digits) for part, digits in match.groupdict().items() if digits is not None}
    if any(number > MOST[part] for part, number in asked.items()):
        raise ValueError(f"there is no checkpoint {name}; `forge checkpoints JOB` lists a job's")
    return asked


def own_checkpoint(job_id: int, name: str) -> tuple[int, int]:
    """Return the attempt and the number of a checkpoint of this job: `1.31`, or `12:1.31`.

    Raises:
        ClientError: it is not the name of a checkpoint, or that of another job's.
    """
    try:
        parts = parsed(of_job(job_id, name))
    except ValueError:
        parts = {}
    if parts.get("job_id") != job_id or "attempt" not in parts:
        raise InvalidInput(
            f"{name!r} is not a checkpoint of job {job_id}",
            hint=f"write ATTEMPT.NUMBER as `forge checkpoints {job_id}` shows them; only a new job"
            " can start from another job's: forge rerun",
        )
    return parts["attempt"], parts["number"]


def of_job(job_id: int, name: str) -> str:
    """Return the name of a checkpoint with its job, by default this one."""
    return f"{job_id}:{name.strip()}" if OWN_NAME.fullmatch(name.strip()) else name
