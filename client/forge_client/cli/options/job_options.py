"""The options of all commands that submit jobs, made from the fields of a job."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Annotated, Any, TypeVar, cast

import typer
from forge_schema.model.quantities import names_text, size
from forge_schema.model.spec import CODE, KEYS, PANELS, Option, option_of

from forge_client.cli.options.completion import experiments, queues
from forge_client.cli.options.job_command import command_of, environment
from forge_client.cli.options.job_names import checkpoint, needed
from forge_client.cli.options.values import labels
from forge_client.errors import ClientError
from forge_client.project.forge_toml import Project
from forge_client.project.request import TABLES, Request
from forge_client.project.submission import called

Submits = TypeVar("Submits", bound=Callable[..., None])


def secret_names(texts: list[str] | None) -> list[str] | None:
    """Return the names of secrets.

    Raises:
        ClientError: one has a value, which is kept off the queue.
    """
    for name, sign, _ in (text.partition("=") for text in texts or ()):
        if sign:
            raise ClientError(
                f"--secret {name} takes only the name of the secret",
                hint=f"write --secret {name}; the value is a file {name} on the workers, in the"
                " folder that --secrets-dir of forge-worker names",
                code="option_invalid",
            )
    return texts


COMPLETIONS: Mapping[str, Any] = {"experiment": experiments, "queue": queues}
CALLBACKS: Mapping[str, Any] = {
    "secrets": secret_names,
    "from_checkpoint": checkpoint,
    **dict.fromkeys(("after", "after_ok", "after_any"), needed),
}
PARSERS: Mapping[str, Callable[[Sequence[str]], Any]] = {"labels": labels, "env": environment}
NO_INSTALL = "no_install"
# What a job that runs in an environment that is there already does not have.
IMAGES = {"image", "image_tar", "dockerfile"}
INSTALLING = {"requirements", "extras", "groups", NO_INSTALL}
PACKING = {"include", "limit"}


def _options() -> dict[str, Option]:
    """Return the options by the keys of forge.toml, in the order of the help."""
    keys = {name: KEYS[name].option for name in KEYS if name not in TABLES}
    others = {n: option_of(field) for n, field in Project.model_fields.items() if n not in KEYS}
    nothing = {NO_INSTALL: Option("Install nothing.", CODE)}
    options = [(n, o) for n, o in {**keys, **others, **nothing}.items() if o and o.typed]
    return dict(sorted(options, key=lambda option: PANELS.index(option[1].panel)))


OPTIONS = _options()


def _kind(name: str) -> Any:  # noqa: ANN401 - any type
    """Return the type that an option's value has on the command line."""
    if name == NO_INSTALL:
        return bool
    if name not in KEYS:
        hint = Project.model_fields[name].annotation
        return list[str] if "list" in str(hint) else str
    key = KEYS[name]
    if key.kind in {list, dict}:
        return list[str]
    # Some have a form of their own: a time, a range of machines, the name of a checkpoint.
    own_form = key.unit or name in get_annotations(Request)
    return key.kind if key.kind in {int, float, bool} and not own_form else str


def _parameter(name: str, *, variables: bool) -> Parameter:
    option, key, kind = OPTIONS[name], KEYS.get(name), _kind(name)
    words = names_text(key.words, len(key.words), last="or") if key and key.words else ""
    info = typer.Option(
        *option.names.split() or [f"--{name.replace('_', '-')}"],
        help=f"{option.help} {option.more}".strip().rstrip(".") + f" ({words})" * bool(words) + ".",
        metavar=option.metavar,
        envvar=option.variable if variables else None,
        rich_help_panel=option.panel or None,
        autocompletion=COMPLETIONS.get(name),
        callback=CALLBACKS.get(name),
    )
    hint: Any = Annotated[kind | None, info]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint)


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
        at = sum(not OPTIONS[one.name].panel for one in theirs)
        named = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own.values()]
        ordered = [*theirs[:at], *named, *theirs[at:]]
        submitting.__signature__ = Signature(ordered)  # type: ignore[attr-defined] # functions may have one
        return cast("Submits", submitting)

    return decorated


def project_of(context: typer.Context) -> Project:
    """Read the forge.toml of a command's folder, with what the options say of its packing.

    Raises:
        ClientError: it is malformed, or an option is.
    """
    folder, limit = context.params["folder"], context.params["limit"]
    project = Project.read(folder) if folder else Project()
    try:
        most = {} if limit is None else {"limit": size(limit)}
    except ValueError as error:
        raise ClientError(
            f"--limit: {error}", hint="write 500MiB or 2GiB", code="option_invalid"
        ) from error
    return project.including(context.params["include"]).model_copy(update=most)


def named_request(context: typer.Context, project: Project) -> Request:
    """Return the job that a command describes; without a name, it has that of its folder."""
    given = {**changes(context.params), "command": command_of(context)}
    request = project.request().changed(given)
    return request.changed({"name": request.name or called(context.params["folder"])})


def changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's parameters that are options of a job as fields of a request."""
    found = {
        name: PARSERS[name](value) if name in PARSERS else value
        for name in OPTIONS.keys() - PACKING - {NO_INSTALL}
        if (value := given.get(name)) not in (None, (), [])
    }
    return found | ({"requirements": False} if given.get(NO_INSTALL) else {})
