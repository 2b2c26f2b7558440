"""The environment of each kind of job, and the operator's handlers for custom jobs.

A handler is an entry point of the group `forge.handlers`. The operator installed it, so it runs as
a process even where jobs may not. It gets the job's input as data only: neither the job's
environment nor modules beside the job's code take effect.
"""

import json
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath

from forge_schema.model.states import JobKind

from forge_worker.attempt.attempt import LiveAttempt
from forge_worker.attempt.folders import JUNIT_FILE, RESULT_FILE
from forge_worker.runners.choice import installed_handlers
from forge_worker.runners.runner import Runner, RunSpec, StartFailed

ARGUMENTS = "arguments.json"
KEPT = ("FORGE_", "PYTHONUNBUFFERED")


class HandlerMissing(StartFailed):
    """The worker does not have the handler of a job any more."""


def handler_start(spec: RunSpec, attempt: LiveAttempt) -> RunSpec:
    """Return the spec of a custom job: its handler in its own process.

    Raises:
        HandlerMissing: the handler is not installed here.
    """
    asked = attempt.grant.spec
    name = asked["handler"]
    if name not in installed_handlers():
        raise HandlerMissing(
            f"this worker has no handler {name!r}",
            hint="it was there at the start; restart the worker after changing its packages",
        )
    call = {"arguments": asked.get("arguments", {}), "env": asked["env"]}
    path = attempt.folders.control / ARGUMENTS
    path.write_text(json.dumps(call), encoding="utf-8")
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
    """Set the paths of the result and the test report; start a custom job's handler."""

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Return the spec with the variables of its kind.

        Raises:
            StartFailed: the job's handler is not installed here.
        """
        asked, paths = attempt.grant.spec, runner.paths(spec)
        report = _report_path(attempt, paths.work_dir, paths.control_dir)
        env = {
            **spec.env,
            "FORGE_RESULT_FILE": str(paths.control_dir / RESULT_FILE),
            "FORGE_JUNIT_FILE": str(report),
        }
        if asked.get("kind") == JobKind.TEST:
            # First, so that the job's own options come later and win.
            more = asked["env"].get("PYTEST_ADDOPTS", "")
            env["PYTEST_ADDOPTS"] = f"--junitxml={shlex.quote(str(report))} {more}".strip()
        spec = replace(spec, env=env)
        return handler_start(spec, attempt) if asked.get("handler") else spec


def _report_path(attempt: LiveAttempt, work: PurePath, control: PurePath) -> PurePath:
    named: str | None = attempt.grant.spec.get("junit")
    if named is None:
        return control / JUNIT_FILE
    with suppress(OSError):
        # A report in the bundle is from an earlier run. No code of the job has run yet, and the
        # bundle's own links stay in the folder.
        (attempt.folders.work / named).unlink()
    return work / named
