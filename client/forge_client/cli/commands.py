"""The commands by name; each module is imported only when needed: importing all takes a second."""

from importlib import import_module
from typing import Any

import typer
from forge_schema.model.errors import plainly
from typer.core import TyperGroup
from typer.main import get_command, get_group

from forge_client.cli.options.job_command import JobCommand
from forge_client.cli.options.other_tools import COMMANDS, suggest_option

PANELS = {
    "Every day": {
        "submit": "jobs.submit:submit",
        "ps": "jobs.ps:ps",
        "runs": "runs.runs:runs",
        "logs": "jobs.logs:logs",
        "show": "jobs.show:show",
        "cancel": "jobs.cancel_retry_preempt:cancel",
        "retry": "jobs.cancel_retry_preempt:retry",
        "top": "jobs.top:top",
    },
    "More about one job": {
        "explain": "jobs.explain:explain",
        "artifacts": "jobs.artifacts:artifacts",
        "result": "jobs.handlers:result",
        "metrics": "jobs.metrics:metrics",
        "tests": "jobs.testing:list_tests",
        "checkpoints": "jobs.checkpoints:checkpoints",
        "code": "code.code:code",
        "diff": "code.code:diff",
        "exec": "inside.shell:enter",
        "ssh": "inside.tunnels:ssh",
        "port": "inside.tunnels:port",
        "preempt": "jobs.cancel_retry_preempt:preempt",
        "approve": "admin.approvals:approve",
    },
    "Other ways to submit": {
        "test": "jobs.testing:run_tests",
        "benchmark": "jobs.benchmark:benchmark",
        "rerun": "code.code:rerun",
        "run-handler": "jobs.handlers:run_handler",
    },
    "Things to manage: forge THING VERB": {
        "sweep": "jobs.benchmark:app",
        "template": "plans.templates:app",
        "schedule": "plans.schedules:app",
        "notification": "plans.notifications:app",
        "worker": "admin.worker:app",
        "queue": "admin.queues:app",
        "key": "admin.keys:app",
        "report": "admin.report:app",
        "db": "admin.db:app",
    },
    "This installation": {
        "up": "admin.up:up",
        "down": "admin.up:down",
        "login": "admin.login:login",
        "logout": "admin.login:logout",
        "dashboard": "jobs.dashboard:dashboard",
        "backup": "admin.backup:backup",
        "restore": "admin.backup:restore",
        "events": "admin.events:events",
        "schema": "admin.schema:schema",
        "doctor": "admin.doctor:doctor",
    },
}
WITH_A_JOB_COMMAND = {"submit", "test", "benchmark", "rerun", "exec", "ssh"}
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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Return the command that the words name."""
        if args and args[0] in COMMANDS:
            ctx.fail(f"No such command '{args[0]}'. Did you mean 'forge {COMMANDS[args[0]]}'?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run a command; what is wrong with an option is said in our words."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if isinstance(error, typer.BadParameter):
                error.message = plainly(error.message)
            suggest_option(error)
            raise


def _loaded(name: str) -> Any:  # noqa: ANN401 - as above
    panel, place = PLACES[name]
    module, attribute = place.split(":")
    found = getattr(import_module(f"forge_client.cli.{module}"), attribute)
    command: Any = get_group(found) if isinstance(found, typer.Typer) else _alone(name, found)
    command.name, command.rich_help_panel = name, panel
    _reflow(command)
    return command


def _reflow(command: Any) -> None:  # noqa: ANN401 - as above
    """Join the lines of each paragraph of the help, so that they break where the terminal ends."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
    for verb in getattr(command, "commands", {}).values():
        _reflow(verb)


def _alone(name: str, function: Any) -> Any:  # noqa: ANN401 - as above
    app = typer.Typer(add_completion=False)
    app.command(name, cls=JobCommand if name in WITH_A_JOB_COMMAND else None)(function)
    return get_command(app)
