"""The options of a job as fields of a request, however the command line was read."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import get_annotations
from pathlib import Path
from typing import Any

from forge_schema.model.quantities import size
from forge_schema.model.reading import NeedsShell, without_signs, words_of
from forge_schema.model.spec import CODE, KEYS, PANELS, Option, option_of

from forge_client.errors import InvalidInput
from forge_client.project.forge_toml import Project
from forge_client.project.request import TABLES, Request

NO_INSTALL = "no_install"
# What a shell, and what it starts, can have.
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
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


def kind_of(name: str) -> Any:  # noqa: ANN401 - any type
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


def command_line(words: Sequence[str] | None, folder: Path | None) -> Sequence[str] | str | None:
    """Return the command after `--`; a line in quotes, which names no file, as one text.

    Raises:
        ClientError: it is written for a shell, or its quotation marks do not match.
    """
    if words is None:
        return None
    try:
        if len(words) > 1 or len(words[0].split()) < 2:  # noqa: PLR2004 - two words
            return without_signs(words)
        if ((folder or Path()) / words[0]).is_file():
            return words
        words_of(words[0])
    except NeedsShell as error:
        fault, instead = error.fault, error.instead
    except ValueError as error:
        fault, instead = f"{words[0]!r}: {str(error).lower()}", "close the quotation marks"
    else:
        return words[0]
    raise InvalidInput(f"command: {fault}", hint=instead)


def secret_names(texts: list[str] | None) -> list[str] | None:
    """Return the names of secrets.

    Raises:
        ClientError: one has a value, which is kept off the queue.
    """
    for name, sign, _ in (text.partition("=") for text in texts or ()):
        if sign:
            raise InvalidInput(
                f"--secret {name} takes only the name of the secret",
                hint=f"write --secret {name}; the value is a file {name} on the workers, in the"
                " folder that --secrets-dir of forge-worker names",
            )
    return texts


def environment(texts: Sequence[str]) -> dict[str, str]:
    """Return variables from NAME=VALUE, or from NAME with the value from this environment."""
    variables = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not (sign or name in os.environ):
            raise InvalidInput(
                f"--env {text!r}: there is no such variable here",
                hint="write NAME=VALUE, or export NAME first",
            )
        if not VARIABLE.fullmatch(name):
            raise InvalidInput(
                f"--env {text!r}: {name!r} cannot be a variable's name",
                hint="begin it with a letter or _; then come letters, digits and _",
            )
        variables[name] = value if sign else os.environ[name]
    return variables


def labels(texts: Sequence[str]) -> dict[str, str]:
    """Parse labels from the command line; `ClientError` if one of them is not a label."""
    pairs = [text.partition("=") for text in texts]
    for (name, sign, value), text in zip(pairs, texts, strict=True):
        if not (name.strip() and sign and value.strip()):
            raise InvalidInput(
                f"--label {text!r} is not a label", hint="write NAME=VALUE, as in --label zone=eu*"
            )
    return {name.strip(): value.strip() for name, _, value in pairs}


def inputs(texts: Sequence[str]) -> dict[str, str]:
    """Parse inputs from the command line; `ClientError` if one of them has no source."""
    pairs = [text.partition("=") for text in texts]
    for (name, _, source), text in zip(pairs, texts, strict=True):
        if not (name and source):
            raise InvalidInput(
                f"--input {text!r} has no {'source' if name else 'name'}",
                hint="write NAME=SOURCE, as in --input data=s3://bucket/set",
            )
    return {name: source for name, _, source in pairs}


PARSERS: Mapping[str, Callable[[Sequence[str]], Any]] = {
    "labels": labels,
    "env": environment,
    "inputs": inputs,
}


def project_in(folder: Path | None, *, limit: str | None, include: Sequence[str] | None) -> Project:
    """Read the forge.toml of a folder, with what the options say of its packing.

    Raises:
        ClientError: it is malformed, or an option is.
    """
    project = Project.read(folder) if folder else Project()
    try:
        most = {} if limit is None else {"limit": size(limit)}
    except ValueError as error:
        raise InvalidInput(f"--limit: {error}", hint="write 500MiB or 2GiB") from error
    return project.including(include).model_copy(update=most)


def changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's parameters that are options of a job as fields of a request."""
    changed = {
        name: PARSERS[name](value) if name in PARSERS else value
        for name in OPTIONS.keys() - PACKING - {NO_INSTALL}
        if (value := given.get(name)) not in (None, (), [])
    }
    return changed | ({"requirements": False} if given.get(NO_INSTALL) else {})
