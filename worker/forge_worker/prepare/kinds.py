"""What a job finds around it for being of its kind: where to put what it finds out."""

import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath

from forge_schema.model.states import JobKind

from forge_worker.job_io.results import REPORT, RESULT
from forge_worker.job_runs.attempt import Attempt
from forge_worker.prepare.handlers import handler_start
from forge_worker.runners.runner import Runner, RunSpec


class KindProvision:
    """Names the files for a result and a test report; turns a custom job into its handler."""

    def provide(self, spec: RunSpec, attempt: Attempt, runner: Runner) -> RunSpec:
        """Return the start with the variables of its kind.

        Raises:
            StartFailed: a handler that is not installed here is asked for.
        """
        asked, paths = attempt.grant.spec, runner.paths(spec)
        report = _report(attempt, paths.work_dir, paths.control_dir)
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


def _report(attempt: Attempt, work: PurePath, control: PurePath) -> PurePath:
    named: str | None = attempt.grant.spec.get("junit")
    if named is None:
        return control / REPORT
    with suppress(OSError):
        # One that came with the code is an earlier run's. Nothing of the job has run yet, so
        # there is no link in the way.
        (attempt.folders.work / named).unlink()
    return work / named
