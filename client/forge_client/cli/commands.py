"""The whole `forge` command: its commands, and the options before their names."""

import sys
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from forge_client.cli.options.command_line import CLOSE, COMMANDS, JobCommand, in_our_words
from forge_client.cli.options.session import Flags
from forge_client.cli.show import narration
from forge_client.errors import MEANINGS, ClientError, ExitCode

PANELS = {
    "Every day": {
        "submit": "jobs.submit:submit",
        "ps": "jobs.ps:ps",
        "runs": "jobs.runs:runs",
        "logs": "jobs.logs:logs",
        "show": "jobs.ps:show",
        "cancel": "jobs.cancel_retry_preempt:cancel",
        "retry": "jobs.cancel_retry_preempt:retry",
        "change": "jobs.submit:change",
        "top": "jobs.top:top",
    },
    "More about one job": {
        "explain": "jobs.explain:explain",
        "artifacts": "jobs.stored:artifacts",
        "result": "jobs.handlers:result",
        "metrics": "jobs.stored:metrics",
        "tests": "jobs.testing:list_tests",
        "checkpoints": "jobs.stored:checkpoints",
        "code": "jobs.code:code",
        "diff": "jobs.code:diff",
        "exec": "jobs.enter:enter",
        "ssh": "jobs.enter:ssh",
        "code-url": "jobs.enter:code_url",
        "port": "jobs.enter:port",
        "tag": "jobs.annotate:app",
        "note": "jobs.annotate:note",
        "archive": "jobs.annotate:archive",
        "delete": "jobs.annotate:delete",
        "preempt": "jobs.cancel_retry_preempt:preempt",
        "approve": "admin.approvals:approve",
    },
    "Other ways to submit": {
        "test": "jobs.testing:run_tests",
        "benchmark": "jobs.benchmark:benchmark",
        "rerun": "jobs.code:rerun",
        "run-handler": "jobs.handlers:run_handler",
    },
    "Things to manage: forge THING VERB": {
        "sweep": "jobs.benchmark:app",
        "template": "plans.templates:app",
        "input": "plans.templates:inputs_app",
        "schedule": "plans.schedules:app",
        "notification": "plans.notifications:app",
        "worker": "admin.worker:app",
        "queue": "admin.queues:app",
        "key": "admin.keys:app",
        "team": "admin.team:app",
        "invite": "admin.keys:invite",
        "report": "admin.report:app",
        "db": "admin.db:app",
    },
    "This installation": {
        "up": "admin.up:up",
        "down": "admin.up:down",
        "login": "admin.login:login",
        "logout": "admin.login:logout",
        "dashboard": "admin.login:dashboard",
        "backup": "admin.db:backup",
        "restore": "admin.db:restore",
        "events": "admin.events:events",
        "schema": "plans.templates:schema",
        "doctor": "admin.doctor:doctor",
        "mcp": "admin.mcp:mcp",
    },
}
HELP = ["-h", "--help"]
QUEUE = "Connection"
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
        name = args[0] if args else ""
        if name in COMMANDS:
            ctx.fail(f"there is no command {name!r}; did you mean `forge {COMMANDS[name]}`?")
        if args and name not in PLACES:
            near = get_close_matches(name, PLACES, 1, CLOSE)
            also = f"; did you mean `forge {near[0]}`?" if near else ": `forge help all` lists them"
            ctx.fail(f"there is no command {name!r}{also}")
        return super().resolve_command(ctx, args)

    def main(self, *given: Any, **more: Any) -> Any:  # noqa: ANN401 - as above
        """Run a command line; what is wrong with it is said in our words."""
        try:
            status = super().main(*given, **{**more, "standalone_mode": False})
        except typer.Abort:
            narration.say("aborted")
            status = ExitCode.FAILED
        except Exception as error:
            # Of typer's own, that of a group alone has shown its help.
            if isinstance(error, ClientError) or not hasattr(error, "exit_code"):
                raise
            status = error.exit_code
            if (ours := in_our_words(error)) is not None:
                narration.complain(ours)
        sys.exit(status)


def children(command: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """Yield the commands of a group, loaded and named as they are for its help."""
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        child = command.get_command(None, name)
        if not child.hidden:
            child.name = name
            yield child


def _loaded(name: str) -> Any:  # noqa: ANN401 - as above
    panel, place = PLACES[name]
    module, attribute = place.split(":")
    verb = getattr(import_module(f"forge_client.cli.{module}"), attribute)
    command: Any = get_group(verb) if isinstance(verb, typer.Typer) else _alone(name, verb)
    command.name, command.rich_help_panel = name, panel
    _for_readers(command)
    return command


def _for_readers(command: Any) -> None:  # noqa: ANN401 - as above
    """Make the help plain: paragraphs break where the terminal ends, few words have types.

    A flag has none, nor has an argument with a word of its own: a JOB is no `<int>`, but any name.
    """
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for parameter in command.get_params(typer.Context(command, help_option_names=HELP)):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.param_type_name == "argument" and parameter.metavar:
            parameter.display_type_rich = _untyped
    for verb in getattr(command, "commands", {}).values():
        _for_readers(verb)


def _untyped(ctx: Any) -> str:  # noqa: ANN401, ARG001 - as above
    return ""


def _alone(name: str, function: Any) -> Any:  # noqa: ANN401 - as above
    app = typer.Typer(add_completion=False)
    app.command(name, cls=JobCommand if name in WITH_A_JOB_COMMAND else None)(function)
    return get_command(app)


EPILOG = "Exit codes: " + "; ".join(f"{code:d} {text}" for code, text in MEANINGS.items())

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    context_settings={"help_option_names": HELP},
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        # It takes a while to import.
        from importlib.metadata import version  # noqa: PLC0415

        print(f"forge {version('forge-queue')}")  # noqa: T201 - the data
        raise typer.Exit


@app.callback()
def forge(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(envvar="FORGE_URL", help="A server: https://…", rich_help_panel=QUEUE),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="FORGE_API_KEY_FILE",
            help="File with the API key; or set FORGE_API_KEY.",
            rich_help_panel=QUEUE,
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="FORGE_TLS_CA",
            help="Additional certificates to trust (PEM).",
            rich_help_panel=QUEUE,
        ),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(envvar="FORGE_DATABASE_URL", help="postgresql://…", rich_help_panel=QUEUE),
    ] = None,
    store_url: Annotated[
        str | None,
        typer.Option(envvar="FORGE_STORE_URL", help="s3://… or file://…", rich_help_panel=QUEUE),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            envvar="FORGE_DIR",
            help="The folder of a running `forge up`.",
            rich_help_panel=QUEUE,
        ),
    ] = None,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Submit training jobs to a Forge queue, watch them, fetch their results.

    Without options, FORGE_* variables or a forge.toml that name the queue, the commands use a
    running `forge up`.
    """
    del url, api_key_file, tls_ca, database_url, store_url, folder
    context.obj = Flags.given(context)
