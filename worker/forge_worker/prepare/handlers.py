"""The environment of each kind of job, and the operator's handlers for custom jobs.

A handler is an entry point of the group `forge.handlers`: code that the operator installed, so it
runs as a process without leave for processes. What comes from the job reaches it as data only: its
environment, and the modules that Python would find beside the job's code, are left out.
"""

import json
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import PurePath

import structlog
from forge_schema.model.spec import HANDLER, HANDLERS
from forge_schema.model.states import JobKind

from forge_worker.job_io.results import REPORT, RESULT
from forge_worker.job_runs.attempt import Attempt
from forge_worker.runners.runner import Runner, RunSpec, StartFailed

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
        log.warning("handler_names_invalid", names=odd)
    return sorted(name for name in named if HANDLER.fullmatch(name))


def label() -> dict[str, str]:
    """Return the worker's label about them: `,name,name2,`, so that `*,name,*` finds one."""
    kept: list[str] = []
    for name in installed():
        if len(",".join(["", *kept, name, ""])) > LABEL_LENGTH:
            log.warning("too_many_handlers", first_left_out=name)
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


class KindProvision:
    """Names the files for a result and a test report; turns a custom job into its handler."""

    def provide(self, spec: RunSpec, attempt: Attempt, runner: Runner) -> RunSpec:
        """Return the start with the variables of its kind.

        Raises:
            StartFailed: a handler that is not installed here is asked for.
        """
        asked, paths = attempt.grant.spec, runner.paths(spec)
        report = _report_path(attempt, paths.work_dir, paths.control_dir)
        env = {
            **spec.env,
            "FORGE_RESULT_FILE": str(paths.control_dir / RESULT),
            "FORGE_JUNIT_FILE": str(report),
        }
        if asked.get("kind") == JobKind.TEST:
            # First, so that what the job says itself comes after it and wins.
            more = asked["env"].get("PYTEST_ADDOPTS", "")
            env["PYTEST_ADDOPTS"] = f"--junitxml={shlex.quote(str(report))} {more}".strip()
        spec = replace(spec, env=env)
        return handler_start(spec, attempt) if asked.get("handler") else spec


def _report_path(attempt: Attempt, work: PurePath, control: PurePath) -> PurePath:
    named: str | None = attempt.grant.spec.get("junit")
    if named is None:
        return control / REPORT
    with suppress(OSError):
        # One that came with the code is an earlier run's. Nothing of the job has run yet, so
        # there is no link in the way.
        (attempt.folders.work / named).unlink()
    return work / named
