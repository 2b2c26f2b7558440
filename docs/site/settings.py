"""The settings of every program, by the variable that gives each."""

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from forge_client.settings import Settings as ClientSettings
from forge_functions.settings import FunctionsSettings as ServerSettings
from forge_schema.sweeper.main import ProcessSettings as SweeperSettings
from forge_worker.settings.help import profile_rows
from forge_worker.settings.help import table as worker_settings
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from tabular import cell, table

HEAD = """\
# Settings

Generated from the code. Each setting is an environment variable. Flags of the same name, such as
`--lease-ttl-s` for `FORGE_LEASE_TTL_S`, override the variables.

## forge-worker

[Worker settings](../worker-settings.md) explains them.
"""
PROGRAMS: Mapping[str, type[BaseModel]] = {
    "forge-server": ServerSettings,
    "forge-sweeper": SweeperSettings,
    "forge": ClientSettings,
}
COLUMNS = ("variable", "default", "meaning")
OF_WORKERS = ("flag", *COLUMNS)


def page() -> str:
    """Return the page about the settings."""
    parts = [HEAD, *_of_workers()]
    for program, kind in PROGRAMS.items():
        fields = kind.model_fields.items()
        parts += [f"## {program}\n", table(COLUMNS, [_row(*field) for field in fields])]
    return "\n".join(parts)


def _of_workers() -> Iterator[str]:
    for group, settings in groupby(worker_settings(), key=lambda setting: setting.group):
        rows = [
            (cell(f"`{one.flag}`"), f"`{one.variable}`", _code(one.default), cell(one.about))
            for one in settings
        ]
        yield f"### {group}\n\n{table(OF_WORKERS, rows)}"
    profiles = [(f"`{profile}`", f"`{flag}`", value) for profile, flag, value in profile_rows()]
    yield f"### Profiles\n\n{table(('profile', 'flag', 'value'), profiles)}"


def _row(name: str, field: FieldInfo) -> tuple[str, str, str]:
    default = "" if field.is_required() or field.default_factory else _shown(field.default)
    needed = "Required: " if field.is_required() else ""
    return f"`FORGE_{name.upper()}`", _code(default), cell(needed + (field.description or ""))


def _shown(default: Any) -> str:  # noqa: ANN401 - a default is of any kind
    if default is None or default == "" or isinstance(default, SecretStr):
        return ""
    return json.dumps(default) if isinstance(default, bool) else str(default)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
