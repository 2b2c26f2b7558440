"""What a tracker's run is called, so that every attempt of a job finds it again."""

from __future__ import annotations

import json
import os
from urllib.parse import urlsplit

from forge_worker import job

# Names the job among those of all queues.
NAME = "FORGE_RUN"


def name() -> str | None:
    """Return the name of the job's run, the same in every attempt; None outside Forge."""
    return os.environ.get(NAME)


def group() -> str | None:
    """Return the experiment, to which similar jobs belong."""
    return os.environ.get("FORGE_EXPERIMENT")


def parameters() -> dict[str, object]:
    """Return the job's parameters."""
    found = json.loads(os.environ.get("FORGE_PARAMETERS") or "{}")
    return found if isinstance(found, dict) else {}


def link(tracker: str, url: str | None) -> None:
    """Report the address of the run, without any credentials in it."""
    found = urlsplit(url or "")
    if found.scheme in ("http", "https"):
        address = found._replace(netloc=found.netloc.rpartition("@")[2])
        job.report(**{tracker: address.geturl()})
