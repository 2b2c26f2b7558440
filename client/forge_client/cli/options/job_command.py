"""The job's own command and environment, for `forge submit` and similar commands."""

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from forge_client.errors import ClientError

COMMAND = "forge.command"


class JobCommand(TyperCommand):
    """Takes everything after `--` as the job's command, even if it looks like an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer hides which click it is
        """Set the job's command aside, and parse the rest as usual."""
        advice = "the job's command comes after --"
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[COMMAND] = args[:at], args[at + 1 :]
            advice = "values have no spaces between them, as in lr=0.1,0.2" * ("--matrix" in args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if advice and "extra argument" in (said := getattr(error, "message", "")):
                ctx.fail(f"{said}; {advice}")
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - as above
        """Show the command in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def command_of(context: typer.Context) -> Sequence[str] | None:
    """Return the words after `--`; None without `--`."""
    if COMMAND not in context.meta:
        return None
    words: list[str] = context.meta[COMMAND]
    if not words or not words[0].strip():
        raise _wrong("the command after -- is empty", "write it there: -- python train.py")
    return words


def _wrong(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="option_invalid")
