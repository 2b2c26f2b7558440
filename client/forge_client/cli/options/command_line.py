"""Command lines of ours: the words after `--`, groups of verbs, and the words of other tools."""

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import typer
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
    **dict.fromkeys(("keys",), "key list"),
    **dict.fromkeys(("templates",), "template list"),
    **dict.fromkeys(("ui", "web"), "dashboard"),
    **dict.fromkeys(("help",), "--help"),
    **dict.fromkeys(("version",), "--version"),
    **dict.fromkeys(("completion", "completions"), "--install-completion"),
    **dict.fromkeys(("init", "config", "configure"), "schema"),
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
    **dict.fromkeys(("--array",), "forge benchmark --matrix"),
    **dict.fromkeys(("--user", "-u"), "--owner"),
    **dict.fromkeys(("--all", "-a"), "a query: state:queued,running; archived:yes,no"),
    **dict.fromkeys(("--deps", "--packages", "--pip", "-r"), "--requirements"),
    **dict.fromkeys(("--only",), "forge artifacts JOB PATH"),
}


def name_model(error: Any) -> None:  # noqa: ANN401 - typer hides which click it is
    """Have an error about a number of GPUs say where their model goes, as in `--gpus a100:1`."""
    if getattr(getattr(error, "param", None), "name", "") == "gpus":
        error.message += ", and their model with --gpu-model, as in --gpus 1 --gpu-model a100"


def suggest_option(error: Any) -> None:  # noqa: ANN401 - typer hides which click it is
    """Have an error about an unknown option name the option that is meant, or where it stands."""
    given = getattr(error, "option_name", "")
    # One that lacks its value, or has one too many, is raised without a context.
    if not given or error.ctx is None:
        return
    if given in {name for param in error.ctx.find_root().command.params for name in param.opts}:
        path = error.ctx.command_path.partition(" ")[2]
        error.message += f": it stands before the command, as in `forge {given} … {path}`"
        error.possibilities = []
        return
    meant = OPTIONS.get(given)
    known = {name for param in error.ctx.command.params for name in param.opts} if meant else ()
    if meant and (meant in known or " " in meant):
        error.possibilities = [meant]


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
