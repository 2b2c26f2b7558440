"""Command lines of ours: the words after `--`, groups of verbs, and the words of other tools."""

import re
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import typer
from forge_schema.model.errors import plainly
from forge_schema.model.quantities import names_text
from typer.core import TyperCommand, TyperGroup

from forge_client.errors import InvalidInput

COMMAND = "forge.command"
# How alike a word must be to a verb that may be meant, from 0 to 1.
CLOSE = 0.7

COMMANDS = {
    **dict.fromkeys(("job", "jobs", "list", "ls", "squeue", "queue-list", "status"), "ps"),
    **dict.fromkeys(("watch",), "ps --watch"),
    **dict.fromkeys(("wait", "follow"), "logs -f"),
    **dict.fromkeys(("describe", "info", "inspect", "get"), "show"),
    **dict.fromkeys(("kill", "stop", "abort", "scancel"), "cancel"),
    **dict.fromkeys(("rm", "remove"), "delete"),
    **dict.fromkeys(("unarchive",), "archive --undo"),
    **dict.fromkeys(("tags", "untag", "label"), "tag"),
    **dict.fromkeys(("notes", "annotate", "comment"), "note"),
    **dict.fromkeys(("run", "launch", "apply", "sbatch", "srun"), "submit"),
    **dict.fromkeys(("tail", "output", "attach"), "logs"),
    **dict.fromkeys(("fetch", "download", "outputs", "files", "cp"), "artifacts"),
    **dict.fromkeys(("shell",), "exec"),
    **dict.fromkeys(("start", "serve"), "up"),
    **dict.fromkeys(("why",), "explain"),
    **dict.fromkeys(("sweeps",), "sweep list"),
    **dict.fromkeys(("compare",), "sweep compare"),
    **dict.fromkeys(("search", "tune"), "sweep run"),
    **dict.fromkeys(("schedules", "cron", "scrontab"), "schedule list"),
    **dict.fromkeys(("experiment", "experiments"), "runs --by experiment"),
    **dict.fromkeys(("reports", "stats", "sacct", "sreport"), "report list"),
    **dict.fromkeys(("notify", "notifications", "webhook", "alert"), "notification list"),
    **dict.fromkeys(("secret", "secrets"), "submit --secret NAME"),
    **dict.fromkeys(("sinfo", "nodes", "workers", "gpu", "gpus"), "worker list"),
    **dict.fromkeys(("drain",), "worker drain"),
    **dict.fromkeys(("queues",), "queue list"),
    **{verb: f"queue {verb}" for verb in ("pause", "resume", "limit")},
    **dict.fromkeys(("keys", "users", "user"), "key list"),
    **dict.fromkeys(("teams", "members"), "team list"),
    **dict.fromkeys(("templates",), "template list"),
    **dict.fromkeys(("ui", "web"), "dashboard"),
    **dict.fromkeys(("help",), "--help"),
    **dict.fromkeys(("version",), "--version"),
    **dict.fromkeys(("completion", "completions"), "--install-completion"),
    **dict.fromkeys(("init", "install"), "up` or, for a lab, `forge-server init"),
    **dict.fromkeys(("config", "configure"), "schema"),
    **dict.fromkeys(("audit", "history"), "events"),
    **dict.fromkeys(("check", "health", "whoami"), "doctor"),
}
# Of these, the first that a group has.
VERBS = {
    **dict.fromkeys(("ls",), ("list",)),
    **dict.fromkeys(("get", "describe", "info", "inspect", "view"), ("show", "list")),
    **dict.fromkeys(("rm", "del", "delete", "remove"), ("remove", "delete", "revoke")),
    **dict.fromkeys(("new", "save", "set", "add", "create", "keep"), ("add", "keep", "create")),
    **dict.fromkeys(("edit", "update"), ("add", "keep", "limit")),
    **dict.fromkeys(("disable", "stop", "suspend"), ("pause", "drain")),
    **dict.fromkeys(("enable", "start", "unpause"), ("resume", "undrain")),
}
OPTIONS = {
    **dict.fromkeys(("--format", "--json", "--csv"), "--output"),
    **dict.fromkeys(("--lines",), "--tail"),
    **dict.fromkeys(("--limit", "--last"), "--count"),
    **dict.fromkeys(("--retries", "--max-retries", "--retry"), "--max-failures"),
    **dict.fromkeys(("--mem", "--mem-per-cpu", "--ram"), "--memory"),
    **dict.fromkeys(("--time", "-t", "--time-limit", "--walltime"), "--timeout"),
    **dict.fromkeys(("--gres", "-G"), "--gpu"),
    **dict.fromkeys(("--cpus-per-task", "-c", "--cpu"), "--cpus"),
    **dict.fromkeys(("--constraint", "-C"), "--label"),
    **dict.fromkeys(("--ntasks", "-N"), "--nodes"),
    **dict.fromkeys(("--dependency", "-d", "--depends-on"), "--after-ok"),
    **dict.fromkeys(("--begin",), "--delay"),
    **dict.fromkeys(("--job-name", "-J"), "--name"),
    **dict.fromkeys(("--partition", "-p"), "--queue"),
    **dict.fromkeys(("--export",), "--env"),
    **dict.fromkeys(("--array",), "`forge benchmark --matrix`"),
    **dict.fromkeys(("--user", "-u"), "--owner"),
    **dict.fromkeys(("--deps", "--packages", "--pip", "-r"), "--requirements"),
    **dict.fromkeys(("--only",), "`forge artifacts JOB PATH`"),
}

# What stands for --all: lists have all states as it is.
QUERIES = {
    **dict.fromkeys(("ps", "runs"), "archived:yes,no"),
    "cancel": "state:queued,held,running",
    "retry": "state:failed",
    "archive": "state:succeeded,failed,cancelled",
    "delete": "archived:yes",
}
# Click's own class, which typer shows by its heirs only.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]


def in_our_words(error: Any) -> InvalidInput | None:  # noqa: ANN401 - typer hides which click it is
    """Return what is wrong with a command line as an error like all others; None if it is another.

    It says how the command is written, unless it says what to write.
    """
    if not isinstance(error, USAGE_ERROR) or type(error).__name__ == "NoArgsIsHelpError":
        return None
    text = _of_an_option(error) or _of_a_value(error) or error.format_message()
    text = text[:1].lower() + text[1:].removesuffix(".")
    param = getattr(error, "param", None)
    if error.ctx and type(error) is not typer.BadParameter and param and param.opts[0][0] == "-":
        return InvalidInput(text, f"write {error.ctx.command_path} {param.opts[0]} …")
    told = type(error) is typer.BadParameter or "`" in text or "did you mean" in text
    if error.ctx is None or told:
        return InvalidInput(text)
    usage = " ".join(error.ctx.get_usage().split()).replace("Usage:", "write")
    return InvalidInput(text, re.sub(r"[{}]", "", usage))


def _of_a_value(error: Any) -> str:  # noqa: ANN401 - as above
    """Return what is wrong with a value, after the option as it was typed."""
    # One that is missing is told well.
    if type(error) is not typer.BadParameter:
        return ""
    text, param = plainly(error.message), error.param
    if getattr(param, "name", "") == "gpus":
        text += ", and their model with --gpu-model, as in --gpus 1 --gpu-model a100"
    if param is None:
        return text
    typed = {word.partition("=")[0] for word in sys.argv[1:]}
    first = param.opts[0] if param.opts[0].startswith("-") else param.metavar or param.opts[0]
    named = next((name for name in param.opts if name in typed), first)
    return f"{named}: {text}"


def _of_an_option(error: Any) -> str:  # noqa: ANN401 - as above
    """Return what is wrong with an option that is not there, and which or where it is instead."""
    given = getattr(error, "option_name", "")
    if given and error.ctx is None:
        return (
            f"{given} needs a value" if "requires" in error.message else f"{given} takes no value"
        )
    if not given:
        return ""
    if given in {name for param in error.ctx.find_root().command.params for name in param.opts}:
        path = error.ctx.command_path.partition(" ")[2]
        return f"{given} stands before the command: write `forge {given} … {path}`"
    near = _meant(given, error.ctx.command) or next(
        iter(get_close_matches(given, error.possibilities or (), 1, CLOSE)), ""
    )
    also = f"; did you mean {near}?" if near else ""
    return f"there is no option {given}{also}"


def _meant(given: str, command: Any) -> str:  # noqa: ANN401 - as above
    """Return what stands for the option of another tool in a command, if anything does."""
    if given in {"--all", "-a"} and command.name in QUERIES:
        return f"`forge {command.name} {QUERIES[command.name]}`"
    meant = OPTIONS.get(given, "")
    known = {name for param in command.params for name in param.opts}
    return meant if meant in known or " " in meant else ""


class VerbNames(TyperGroup):
    """Names the verb that is meant by the word of another tool, or all verbs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer hides which click it is
        """Return the command of a verb."""
        if args and args[0] not in self.commands:
            self._refuse(ctx, args)
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: Any, args: list[str]) -> None:  # noqa: ANN401 - as above
        word = args[0]
        others = (verb for verb in VERBS.get(word, ()) if verb in self.commands)
        if meant := next(others, None) or next(
            iter(get_close_matches(word, self.commands, 1, CLOSE)), ""
        ):
            ctx.fail(f"`forge {self.name}` has no command {word!r}; did you mean {meant!r}?")
        if "add" in self.commands and len(args) > 1:
            ctx.fail(
                f"`forge {self.name}` has no command {word!r}: did you mean"
                f" `forge {self.name} add {shlex.join(args)}`?"
            )
        verbs = names_text(list(self.commands), len(self.commands), last="or")
        ctx.fail(f"`forge {self.name}` has no command {word!r}: write {verbs}")


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
            if advice and "extra argument" in (message := getattr(error, "message", "")):
                ctx.fail(f"{message}; {advice}")
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
        raise InvalidInput("the command after -- is empty", "write it there: -- python train.py")
    return words
