"""The options of a job as fields of a request, however the command line was read."""

from collections.abc import Mapping, Sequence
from inspect import get_annotations
from pathlib import Path
from typing import Any

from forge_schema.model.quantities import size
from forge_schema.model.spec import CODE, KEYS, PANELS, Option, option_of

from forge_client.errors import InvalidInput
from forge_client.project.forge_toml import Project
from forge_client.project.request import TABLES, Request
from forge_client.project.written import PARSERS

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
