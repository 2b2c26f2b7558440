"""`forge run-handler` and `forge result`: custom jobs, and the result of any job."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from forge_client.cli.options import job_options as o
from forge_client.cli.options.job_fields import IMAGES, INSTALLING, changes
from forge_client.cli.options.names import JobId
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.options.values import DryRunOption, FormatOption, WaitOption
from forge_client.cli.show import output
from forge_client.cli.show.output import Format, inline
from forge_client.cli.show.submitted import ready, show_plan, show_submitted
from forge_client.connection import connect
from forge_client.errors import ClientError, InvalidInput
from forge_client.project.request import Request
from forge_client.project.submit import uploaded
from forge_client.results.names import require_rank


# It runs in the worker's environment.
@o.with_job_options(without={*IMAGES, *INSTALLING})
def run_handler(
    context: typer.Context,
    handler: Annotated[str, typer.Argument(metavar="HANDLER", help="The handler's name.")],
    arg: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE; JSON values are parsed.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Project to put in the work folder; default: none.")
    ] = None,
    wait: WaitOption = False,
    dry_run: DryRunOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run a handler that an operator installed on a worker.

    The job waits for a worker that has the handler. `forge worker list -o json` shows each worker's
    handlers in the label forge.handlers.
    """
    project = o.project_of(context)
    request = Request().changed({
        "name": handler,
        "experiment": handler,
        **changes(context.params),
        "kind": "custom",
        "handler": handler,
        "arguments": arguments(arg or []),
        # A job needs a command: the one that would call the handler by hand.
        "command": [handler],
        "requirements": False,
    })  # fmt: skip
    settings = settings_of(context)
    whole = ready(settings.job_owner, project, [request], folder)
    if dry_run:
        show_plan(settings, whole, form)
        return
    with connect(settings) as backend:
        (job_id,) = backend.submit(uploaded(backend, whole))
        show_submitted(backend, job_id, form, wait=wait)


def result(
    context: typer.Context,
    job: JobId,
    rank: Annotated[int, typer.Option(help="Rank, of a job on several machines.", min=0)] = 0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a job's result: what its accepted attempt wrote to $FORGE_RESULT_FILE."""
    with backend_of(context) as backend:
        if rank:
            require_rank(backend.job(job), rank)
        answer = backend.findings.result(job, rank=rank)
    if answer.values is None:
        raise ClientError(
            f"job {job} has no result" + f" of rank {rank}" * bool(rank),
            hint="a job writes one JSON object to $FORGE_RESULT_FILE; it is read when it has ended",
            code="no_result",
        )
    values = answer.values
    output.show_one(
        values, form, lambda: output.fields([(k, inline(v)) for k, v in values.items()])
    )


def arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Parse arguments of the form KEY=VALUE; a value that is not JSON is text.

    Raises:
        ClientError: one has no key, or two have the same key.
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (key and sign) or key in values:
            raise InvalidInput(
                f"--arg {text!r}: " + ("given twice" if key in values else "not KEY=VALUE"),
                hint="write KEY=VALUE once for each: --arg size=3 --arg 'shape=[2, 3]'",
            )
        values[key] = _value(value)
    return values


def _value(text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(text)
    except ValueError:
        return text
