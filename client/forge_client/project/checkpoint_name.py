"""How a person names a checkpoint: `12` is the newest of job 12, `12:2.7` number 7 of attempt 2."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

NAME = re.compile(r"(?P<job_id>[0-9]+)(:(?P<attempt>[0-9]+)\.(?P<number>[0-9]+))?")

# The most that the queue counts to.
MOST = {"job_id": 2**63 - 1, "attempt": 32_767, "number": 2_000_000_000}


def parsed(name: object) -> dict[str, int]:
    """Return a checkpoint's name as the queue wants it.

    Raises:
        ValueError: it names none.
    """
    found = NAME.fullmatch(str(name).strip())
    if found is None:
        raise ValueError(
            "write a job's number for its newest checkpoint, or JOB:ATTEMPT.NUMBER as"
            " `forge checkpoints JOB` shows them"
        )
    asked = {part: int(said) for part, said in found.groupdict().items() if said is not None}
    if any(number > MOST[part] for part, number in asked.items()):
        raise ValueError(f"there is no checkpoint {name}; `forge checkpoints JOB` lists a job's")
    return asked


CheckpointName = Annotated[dict[str, Any], BeforeValidator(parsed)]
