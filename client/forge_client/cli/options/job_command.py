"""The job's own command and environment, for `forge submit` and similar commands."""

import os
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from forge_client.errors import ClientError

COMMAND = "forge.command"
# The boxes of the help; options that are in none of them come first.
PANELS = {
    "Resources": (
        *("gpu", "gpu_model", "vram", "accelerator", "cpus", "memory", "disk", "label", "target"),
        *("nodes", "launcher", "same", "mixed"),
    ),
    "Code and environment": (
        *("image", "image_tar", "dockerfile", "env", "secret", "requirements", "extra", "group"),
        *("no_install", "include", "limit", "precision", "streams", "objective"),
    ),
    "When it starts": ("queue", "priority", "delay", "after", "after_ok", "after_any"),
    "Failures and time limits": (
        *("max_failures", "backoff", "timeout", "grace", "preempt_signal"),
        *("stall_no_progress", "stall_silent_log", "stall_idle_gpu"),
    ),
    "Checkpoints": (
        *("from_checkpoint", "checkpoint_interval", "checkpoint_dir", "checkpoint"),
        "keep_checkpoints",
    ),
}
PLACE = {panel: place for place, panel in enumerate(PANELS, 1)}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class JobCommand(TyperCommand):
    """Takes everything after `--` as the job's command, even if it looks like an option."""

    def __init__(self, *args: Any, **given: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(*args, **given)
        for one in self.params:
            if one.name in PANEL_OF and isinstance(one, TyperOption):
                one.rich_help_panel = PANEL_OF[one.name]
        # The help has the boxes in the order in which it meets them.
        self.params.sort(key=lambda one: PLACE.get(PANEL_OF.get(one.name or "", ""), 0))

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


def environment(texts: Sequence[str]) -> dict[str, str]:
    """Return variables from NAME=VALUE, or from NAME with the value from this environment."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not (sign or name in os.environ):
            raise _wrong(
                f"--env {text!r}: there is no such variable here",
                "write NAME=VALUE, or export NAME first",
            )
        found[name] = value if sign else os.environ[name]
    return found


def _wrong(message: str, hint: str) -> ClientError:
    return ClientError(message, hint=hint, code="option_invalid")
