"""`forge test` and `forge tests`: run a project's tests, and list their results."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from forge_schema.model.results import JobTest

from forge_client.backend import Backend
from forge_client.cli.options import job_options as o
from forge_client.cli.options.command_line import COMMAND
from forge_client.cli.options.job_fields import changes
from forge_client.cli.options.names import JobId
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import DryRunOption, FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Column, Format
from forge_client.cli.show.submitted import ready, send, show_plan
from forge_client.cli.show.waiting import wait_and_show
from forge_client.connection import connect
from forge_client.findings import all_tests
from forge_client.project.submission import PYTEST

WORSE = ("failed", "error")
COLUMNS: list[Column] = [
    ("VERDICT", lambda t: t.verdict),
    ("SECONDS", lambda t: "" if t.seconds is None else f"{t.seconds:.3f}"),
    ("SUITE", lambda t: t.suite),
    ("TEST", lambda t: t.name),
    ("MESSAGE", lambda t: (t.message or "").partition("\n")[0][:120]),
]


@o.with_job_options()
def run_tests(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="Project folder, with an optional forge.toml.")
    ] = Path(),
    program: Annotated[
        str, typer.Option("--with", help="Command that runs the tests and writes a JUnit report.")
    ] = PYTEST,
    junit: Annotated[
        str | None,
        typer.Option(help="Path of the JUnit report, if the runner has no option for it."),
    ] = None,
    dry_run: DryRunOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run a project's tests as a job, follow its log, and exit with its exit code.

    What follows `--` goes to pytest. `forge tests JOB` lists how each test ended. Failed tests are
    not retried, unless forge.toml says so.
    """
    project = o.project_of(context)
    request = project.request().changed({
        "max_failures": 0 if project.max_failures is None else None,
        **changes(context.params),
        "junit": junit,
        "kind": "test",
        "command": [*shlex.split(program), *context.meta.get(COMMAND, [])],
    })  # fmt: skip
    settings = settings_of(context, project)
    whole = ready(settings.job_owner, project, [request], folder)
    if dry_run:
        show_plan(settings, whole, form)
        return
    with connect(settings) as backend:
        (job_id,) = send(backend, whole)
        code = wait_and_show(backend, job_id, form)
        rows = list(all_tests(backend.findings, job_id))
        if rows:
            narration.say(f"{counted(rows)}; `forge tests {job_id}` lists them")
    raise typer.Exit(code)


def list_tests(
    context: typer.Context,
    job: JobId,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    attempt: Annotated[int | None, typer.Option(help="Attempt number.", min=1)] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the test results of a job, from its newest attempt that has any."""
    with backend_of(context) as backend:
        verdicts = WORSE if failed else None
        rows = list(all_tests(backend.findings, job, attempt=attempt, verdicts=verdicts))
        sentence = counted(rows) if rows else why_none(backend, job, attempt)
    output.show(rows, COLUMNS, form)
    narration.say(sentence)


def why_none(backend: Backend, job: int, attempt: int | None = None) -> str:
    """Say why there are no tests to list: none failed, or there is no report."""
    if backend.findings.tests(job, attempt=attempt):
        return "none of its tests failed"
    state = backend.job(job)
    whose = f"job {job}" if attempt is None else f"attempt {attempt} of job {job}"
    if not state.terminal:
        return f"no report of {whose} is stored yet: it is {state.state}, and its end brings one"
    return (
        f"no report of {whose} was stored; it {state.state}. `forge test`, or `junit` in"
        " forge.toml, says where the job writes one"
    )


def counted(rows: list[JobTest]) -> str:
    """Count the tests by outcome: `3 passed, 1 failed`."""
    verdicts = [row.verdict for row in rows]
    return ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
