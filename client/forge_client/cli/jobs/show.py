"""`forge show`: one job in detail."""

import typer

from forge_client.cli.options.job_names import LAST, JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import output
from forge_client.cli.show.job_details import details
from forge_client.cli.show.output import Format
from forge_client.findings import everything


def show(context: typer.Context, job: JobId = LAST, form: FormatOption = Format.TABLE) -> None:
    """Show one job: its state, results, configuration, attempts and events.

    Without JOB, your newest.
    """
    with backend_of(context) as backend:
        found = everything(backend, job)
    output.show_one(found, form, lambda: details(**found))
