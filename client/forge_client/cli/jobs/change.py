"""`forge change`: other values for a job that waits."""

from functools import partial

import typer
from forge_schema.model.job import JobDetail
from forge_schema.model.spec import KEYS

from forge_client.cli.options.job_fields import OPTIONS, changes
from forge_client.cli.options.job_options import with_job_options
from forge_client.cli.options.names import JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Format
from forge_client.errors import ClientError
from forge_client.project.request import Request
from forge_client.results.endings import waiting_for

# The options of a job that cannot be changed.
FIXED = [name for name in OPTIONS if name not in KEYS or not KEYS[name].changes]


@with_job_options(without=FIXED, variables=False)
def change(context: typer.Context, job: JobId, form: FormatOption = Format.TABLE) -> None:
    """Change a job that waits. It keeps its place, and its events show the old values."""
    fields = Request().changed(changes(context.params)).fields()
    fields = {name: value for name, value in fields.items() if value != {}}
    if not fields:
        raise ClientError(
            "there is nothing to change",
            hint=f"write what to change, as in `forge change {job} --priority 5`",
            code="option_invalid",
        )
    with backend_of(context) as backend:
        changed = backend.change(job, fields)
    output.show_one(changed, form, partial(_say_changed, changed))


def _say_changed(job: JobDetail) -> None:
    held = waiting_for(job)
    narration.say(f"job {job.job_id} is changed{f', and {held}' if held else ''}")
