"""The digits example as a job: how to submit it, and how to read its output."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from support.workers.worker import SMALL, Bed

if TYPE_CHECKING:
    from forge_schema.database.pool import Row

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"
RESOURCES = SMALL.model_copy(update={"memory_mb": 512})


def train(made: Bed, *, epochs: int, seconds_per_epoch: float = 0.0, **fields: Any) -> int:  # noqa: ANN401  fields of all types
    """Submit a training."""
    command = [made.python, "train.py", "--epochs", str(epochs)]
    command += ["--seconds-per-epoch", str(seconds_per_epoch)]
    given = {"name": "digits", "resources": RESOURCES, **fields}
    return made.submit(*command, folder=EXAMPLE, **given)


def trained(made: Bed, job: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a training's result and weights."""
    artifacts = made.artifacts(job)
    with np.load(io.BytesIO(artifacts["model.npz"])) as stored:
        return json.loads(artifacts["result.json"]), dict(stored)


def stored_epoch(made: Bed, job: int, attempt: int) -> int:
    """Return the epoch of the last checkpoint that an attempt stored."""
    row = made.database.row("latest_checkpoint", job_id=job)
    assert row is not None
    assert row["attempt"] == attempt
    manifest = json.loads(made.store.get(row["key"]))
    entry = next(file for file in manifest["files"] if file["path"] == "checkpoint.npz")
    with np.load(io.BytesIO(made.store.get(entry["key"]))) as state:
        return int(state["epoch"])


def checkpoints(made: Bed, job: int) -> list[Row]:
    """Return the rows of a job's checkpoints."""
    with made.database.connection() as connection:
        return connection.execute("SELECT * FROM checkpoint WHERE job_id = %s", [job]).fetchall()
