"""The operator's own handlers for custom jobs: entry points of the group `forge.handlers`.

A handler is code that the operator installed, so it runs as a process without leave for processes.
What comes from the job reaches it as data only: its environment, and the modules that Python
would find beside the job's code, are left out.
"""

import json
import sys
from dataclasses import replace
from importlib.metadata import entry_points

import structlog
from forge_schema.model.spec import HANDLER, HANDLERS

from forge_worker.job_runs.attempt import Attempt
from forge_worker.runners.runner import RunSpec, StartFailed

GROUP = "forge.handlers"
ARGUMENTS = "arguments.json"
# What a worker's label may have.
LABEL_LENGTH = 2000
KEPT = ("FORGE_", "PYTHONUNBUFFERED")

log = structlog.get_logger(__name__)


def installed() -> list[str]:
    """Return the names of the handlers that are installed here, in order."""
    named = {point.name for point in entry_points(group=GROUP)}
    if odd := sorted(name for name in named if not HANDLER.fullmatch(name)):
        log.warning("handlers by whose name no job can ask for them", names=odd)
    return sorted(name for name in named if HANDLER.fullmatch(name))


def label() -> dict[str, str]:
    """Return the worker's label about them: `,name,name2,`, so that `*,name,*` finds one."""
    kept: list[str] = []
    for name in installed():
        if len(",".join(["", *kept, name, ""])) > LABEL_LENGTH:
            log.warning("too many handlers to name", first_left_out=name)
            break
        kept.append(name)
    return {HANDLERS: ",".join(["", *kept, ""])} if kept else {}


def handler_start(spec: RunSpec, attempt: Attempt) -> RunSpec:
    """Return the start of a custom job: its handler in a process of its own.

    Raises:
        StartFailed: it is not installed here.
    """
    asked = attempt.grant.spec
    name = asked["handler"]
    if name not in installed():
        raise StartFailed(
            f"this worker has no handler {name!r}",
            hint="it had when it started; restart it after its packages have changed",
        )
    told = {"arguments": asked.get("arguments", {}), "env": asked["env"]}
    path = attempt.folders.control / ARGUMENTS
    path.write_text(json.dumps(told), encoding="utf-8")
    places = [place for place in sys.path if place]
    boot = (
        f"import sys; sys.path[:0] = {places!r}; from forge_worker.inside.handler import main; "
        "main()"
    )
    return replace(
        spec,
        command=(sys.executable, "-I", "-c", boot, name, str(path)),
        env={key: value for key, value in spec.env.items() if key.startswith(KEPT)},
        bin_dirs=(),
        python_dirs=(),
    )
