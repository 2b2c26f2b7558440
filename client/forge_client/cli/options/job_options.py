"""The options of all commands that submit jobs, made from the fields of a job."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar, cast

import typer
from forge_schema.model.quantities import duration_text, names_text
from forge_schema.model.spec import KEYS, Key

from forge_client.cli.options.command_line import command_of
from forge_client.cli.options.job_fields import (
    OPTIONS,
    changes,
    kind_of,
    project_in,
)
from forge_client.cli.options.names import checkpoint, experiments, needed, queues
from forge_client.project.forge_toml import Project
from forge_client.project.request import Request
from forge_client.project.submission import called
from forge_client.project.written import command_line

Submits = TypeVar("Submits", bound=Callable[..., None])


# Of what a job simply does not have.
NO_DEFAULT = (None, "", "*", 0.0)
COMPLETIONS: Mapping[str, Any] = {"experiment": experiments, "queue": queues}
CALLBACKS: Mapping[str, Any] = {
    "from_checkpoint": checkpoint,
    **dict.fromkeys(("after", "after_ok", "after_any"), needed),
}


def _parameter(name: str, *, variables: bool) -> Parameter:
    option, key, kind = OPTIONS[name], KEYS.get(name), kind_of(name)
    words = names_text(key.words, len(key.words), last="or") if key and key.words else ""
    info = typer.Option(
        *option.names.split() or [f"--{name.replace('_', '-')}"],
        help=f"{option.help} {option.more}".strip().rstrip(".")
        + (_default(key) if key and variables else "")
        + f" ({words})" * bool(words)
        + ".",
        metavar=option.metavar,
        envvar=option.variable if variables else None,
        rich_help_panel=option.panel or None,
        autocompletion=COMPLETIONS.get(name),
        callback=CALLBACKS.get(name),
    )
    hint: Any = Annotated[kind | None, info]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def _default(key: Key) -> str:
    """Return what a job has that does not say, if its help does not tell it."""
    if (
        "default" in key.option.help
        or key.default in NO_DEFAULT
        or key.kind not in {int, float, str}
    ):
        return ""
    value = duration_text(key.default) if key.unit == "_s" else str(key.default).removesuffix(".0")
    return f"; default: {value}"


def with_job_options(
    *, without: Collection[str] = (), variables: bool = True
) -> Callable[[Submits], Submits]:
    """Give a command the options of a job, which it reads from its context by `changes`.

    Args:
        without: the keys that have no option here. A parameter of the command's own comes in the
            place of the option of its name.
        variables: whether environment variables stand for options.
    """

    def decorated(command: Submits) -> Submits:
        own = signature(command).parameters
        theirs = [
            _parameter(name, variables=variables)
            for name in OPTIONS
            if name not in {*without, *own}
        ]

        @wraps(command)
        def submitting(**given: Any) -> None:  # noqa: ANN401 - options of all types
            command(**{name: given[name] for name in own})

        # The help has the boxes in the order in which it meets them.
        at = sum(not OPTIONS[parameter.name].panel for parameter in theirs)
        named = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own.values()]
        ordered = [*theirs[:at], *named, *theirs[at:]]
        submitting.__signature__ = Signature(ordered)  # type: ignore[attr-defined] # functions may have one
        return cast("Submits", submitting)

    return decorated


def project_of(context: typer.Context) -> Project:
    """Read the forge.toml of a command's folder, with what the options say of its packing.

    Raises:
        ClientError: it is malformed, or an option is.
    """
    given = context.params
    return project_in(given["folder"], limit=given["limit"], include=given["include"])


def job_command(context: typer.Context) -> Sequence[str] | str | None:
    """Return the job's command as a command line has it after `--`; None without `--`."""
    return command_line(command_of(context), context.params.get("folder"))


def named_request(context: typer.Context, project: Project) -> Request:
    """Return the job that a command describes; without a name, it has that of its folder."""
    given = {**changes(context.params), "command": job_command(context)}
    request = project.request().changed(given)
    return request.changed({"name": request.name or called(context.params["folder"])})
