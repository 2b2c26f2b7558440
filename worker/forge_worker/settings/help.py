"""The settings as the table in docs/worker-settings.md and as `forge-worker --help`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from forge_worker.settings.profiles import PROFILES, WORDS
from forge_worker.settings.sections import (
    MachineSettings,
    PaceSettings,
    PolicySettings,
    SpotSettings,
)
from forge_worker.settings.settings import ActSettings, QueueSettings, WorkerSettings

GROUPS: dict[str, type[BaseModel]] = {
    "The queue": QueueSettings,
    "This worker": WorkerSettings,
    "Resources and limits": MachineSettings,
    "What jobs may do": PolicySettings,
    "Timing": PaceSettings,
    "When the machine is taken away": SpotSettings,
    "Instead of running jobs": ActSettings,
}
PLACES: dict[object, str] = {int: "N", float: "N", Path: "PATH"}
HEAD = """\
Usage: forge-worker [FLAG…]

Run jobs from a Forge queue on this machine until stopped: the first SIGINT
lets running jobs finish, SIGTERM gives them back to the queue, SIGUSR2 leaves
them to the next forge-worker.

Each flag has a variable. Flags override variables, variables override the
profile, and the profile overrides the defaults. To turn off a switch that is
on by default, use --no-…. Separate the items of a list with commas. Sizes are
in MiB, times in seconds.
"""
INDENT = "      "
WIDTH = 79


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as shown to people."""

    group: str
    name: str
    flag: str
    variable: str
    default: str
    about: str


def table() -> Iterator[Setting]:
    """Yield every setting of the worker, in the order of the documentation."""
    for group, kind in GROUPS.items():
        inherited = {name for base in kind.__bases__ for name in getattr(base, "model_fields", ())}
        for field, info in kind.model_fields.items():
            if field not in inherited:
                yield _setting(group, field, info)


def profile_rows() -> Iterator[tuple[str, str, str]]:
    """Yield profile, flag and value of every setting in the profiles."""
    for profile, values in PROFILES.items():
        for name, value in values.items():
            yield profile, f"--{name.replace('_', '-')}", _profile_word(value)


def _profile_word(value: float | Callable[[], float]) -> str:
    return WORDS[value] if callable(value) else f"{value:g}"


def _setting(group: str, field: str, info: FieldInfo) -> Setting:
    name = str(info.validation_alias or field)
    flag = name.replace("_", "-")
    place = _place(info.annotation)
    said = f"--no-{flag}" if info.default is True else f"--{flag} {place}".rstrip()
    return Setting(
        group, field, said, f"FORGE_{name.upper()}", _default(info), info.description or ""
    )


def _default(info: FieldInfo) -> str:
    if isinstance(info.json_schema_extra, dict) and "default" in info.json_schema_extra:
        return str(info.json_schema_extra["default"])
    value = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, (int, float)):
        return f"{value:.15g}"
    return str(value) if value else ""


def _place(annotation: Any) -> str:  # noqa: ANN401  an annotation is of any kind
    if annotation is bool:
        return ""
    if get_origin(annotation) is Literal:
        return "|".join(filter(None, get_args(annotation)))
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return _place(get_args(annotation)[0])
    return PLACES.get(annotation, "TEXT")


def wanted(words: list[str]) -> bool:
    """Return whether a command line asks for help."""
    return "-h" in words or "--help" in words


def text() -> str:
    """Return the help text."""
    parts = [HEAD]
    for group, settings in groupby(table(), key=lambda setting: setting.group):
        parts.append(f"{group}:")
        parts += [_entry(setting) for setting in settings]
        parts.append("")
    return "\n".join([*parts, *_profiles(), ""])


def _entry(setting: Setting) -> str:
    default = f" (default: {setting.default})" if setting.default not in ("", "no") else ""
    about = wrap(setting.about + default, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    return "\n".join([f"  {setting.flag}  [{setting.variable}]", *about])


def _profiles() -> Iterator[str]:
    yield "Profiles:"
    for profile, rows in groupby(profile_rows(), key=lambda row: row[0]):
        said = ", ".join(f"{flag} {value}" for _, flag, value in rows)
        yield f"  {profile}"
        yield from wrap(
            said, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False
        )
