"""The commands by name; each module is imported only when needed: importing all takes a second."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from forge_client.cli.options.job_command import JobCommand

PANELS = {
    "Jobs": {
        "submit": "jobs.submit:submit",
        "ps": "jobs.ps:ps",
        "show": "jobs.ps:show",
        "explain": "jobs.explain:explain",
        "logs": "jobs.logs:logs",
        "metrics": "jobs.metrics:metrics",
        "top": "jobs.top:top",
        "dashboard": "jobs.dashboard:dashboard",
        "artifacts": "jobs.artifacts:artifacts",
        "checkpoints": "jobs.checkpoints:checkpoints",
        "result": "jobs.handlers:result",
        "code": "code.code:code",
        "diff": "code.code:diff",
        "rerun": "code.code:rerun",
        "templates": "plans.templates:app",
        "schedule": "plans.schedules:app",
    },
    "Tests and benchmarks": {
        "test": "jobs.testing:run_tests",
        "tests": "jobs.testing:list_tests",
        "benchmark": "jobs.benchmark:benchmark",
        "sweep": "jobs.benchmark:sweep",
        "compare": "jobs.benchmark:compare",
        "run-handler": "jobs.handlers:run_handler",
    },
    "Control": {
        "cancel": "jobs.cancel_retry_preempt:cancel",
        "retry": "jobs.cancel_retry_preempt:retry",
        "preempt": "jobs.cancel_retry_preempt:preempt",
        "exec": "jobs.shell:enter",
        "workers": "admin.workers:workers",
        "drain": "admin.workers:drain",
    },
    "Administration": {
        "queues": "admin.queues:queues",
        "pause": "admin.queues:pause",
        "resume": "admin.queues:resume",
        "limit": "admin.queues:limit",
        "approve": "admin.approvals:approve",
        "events": "admin.events:events",
        "report": "admin.report:report",
        "keys": "admin.keys:app",
        "worker": "admin.worker:app",
    },
    "Installation": {
        "up": "admin.up:up",
        "down": "admin.up:down",
        "doctor": "admin.doctor:doctor",
        "db": "admin.db:app",
    },
}
WITH_A_JOB_COMMAND = {"submit", "test", "benchmark", "exec"}
PLACES = {name: (panel, place) for panel, named in PANELS.items() for name, place in named.items()}


class Commands(TyperGroup):
    """The `forge` command, which loads a command when it is run or shown in the help."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(**given)
        # Typer uses these names for suggestions and for the list of commands.
        self.commands: dict[str, Any] = dict.fromkeys(PLACES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer hides which click it is
        """Return a command by name, None if there is no such command."""
        if cmd_name in PLACES and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _loaded(cmd_name)
        return super().get_command(ctx, cmd_name)


def _loaded(name: str) -> Any:  # noqa: ANN401 - as above
    panel, place = PLACES[name]
    module, attribute = place.split(":")
    found = getattr(import_module(f"forge_client.cli.{module}"), attribute)
    command: Any = get_group(found) if isinstance(found, typer.Typer) else _alone(name, found)
    command.name, command.rich_help_panel = name, panel
    return command


def _alone(name: str, function: Any) -> Any:  # noqa: ANN401 - as above
    app = typer.Typer(add_completion=False)
    app.command(name, cls=JobCommand if name in WITH_A_JOB_COMMAND else None)(function)
    return get_command(app)
