"""Words of other tools, and the commands, verbs and options that do the same here."""

from typing import Any

COMMANDS = {
    **dict.fromkeys(("jobs", "list", "ls", "squeue", "queue-list"), "ps"),
    **dict.fromkeys(("status", "describe", "info", "inspect", "get"), "show"),
    **dict.fromkeys(("kill", "stop", "rm", "delete", "abort", "scancel"), "cancel"),
    **dict.fromkeys(("run", "launch", "sbatch", "srun"), "submit"),
    **dict.fromkeys(("tail", "output", "attach"), "logs"),
    **dict.fromkeys(("fetch", "download", "outputs", "files"), "artifacts"),
    **dict.fromkeys(("shell",), "exec"),
    **dict.fromkeys(("start", "serve"), "up"),
    **dict.fromkeys(("why",), "explain"),
    **dict.fromkeys(("sweeps",), "sweep list"),
    **dict.fromkeys(("compare",), "sweep compare"),
    **dict.fromkeys(("search", "tune"), "sweep run"),
    **dict.fromkeys(("schedules", "cron", "scrontab"), "schedule list"),
    **dict.fromkeys(("experiment", "experiments"), "runs --by experiment"),
    **dict.fromkeys(("reports", "sacct", "sreport"), "report list"),
    **dict.fromkeys(("notify", "notifications", "webhook", "alert"), "notification list"),
    **dict.fromkeys(("secret", "secrets"), "submit --secret NAME"),
    **dict.fromkeys(("sinfo", "nodes", "workers"), "worker list"),
    **dict.fromkeys(("drain",), "worker drain"),
    **dict.fromkeys(("queues",), "queue list"),
    **{verb: f"queue {verb}" for verb in ("pause", "resume", "limit")},
    **dict.fromkeys(("keys",), "key list"),
    **dict.fromkeys(("templates",), "template list"),
    **dict.fromkeys(("ui", "web"), "dashboard"),
    **dict.fromkeys(("help",), "--help"),
    **dict.fromkeys(("version",), "--version"),
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
    **dict.fromkeys(("-n", "--lines"), "--tail"),
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
    **dict.fromkeys(("--template",), "--config"),
    **dict.fromkeys(("--array",), "forge benchmark --matrix"),
    **dict.fromkeys(("--user", "-u"), "--owner"),
}


def suggest_option(error: Any) -> None:  # noqa: ANN401 - typer hides which click it is
    """Have an error about an unknown option name the option that is meant, if there is one."""
    meant = OPTIONS.get(getattr(error, "option_name", ""))
    known = {name for one in error.ctx.command.params for name in one.opts} if meant else ()
    if meant and (meant in known or " " in meant):
        error.possibilities = [meant]
