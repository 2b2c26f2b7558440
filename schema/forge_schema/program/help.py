"""The settings of a program as a table and as its help: in groups, with plain types."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import NoDecode

PLACES: dict[object, str] = {int: "N", float: "N", Path: "PATH"}
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


def settings_in(groups: Mapping[str, Mapping[str, FieldInfo]]) -> Iterator[Setting]:
    """Yield every setting, in the order of its group."""
    for group, fields in groups.items():
        for field, info in fields.items():
            yield _setting(group, field, info)


def in_groups(kind: type[BaseModel], groups: Mapping[str, Sequence[str]]) -> Iterator[Setting]:
    """Yield the settings of a class by groups of names; the rest comes last."""
    grouped = {name for names in groups.values() for name in names}
    rest = [name for name in kind.model_fields if name not in grouped]
    whole = {**groups, **({"Others": rest} if rest else {})}
    return settings_in(
        {group: {name: kind.model_fields[name] for name in names} for group, names in whole.items()}
    )


def _setting(group: str, field: str, info: FieldInfo) -> Setting:
    name = str(info.validation_alias or field)
    flag = name.replace("_", "-")
    as_text = any(
        metadata is NoDecode or isinstance(metadata, NoDecode) for metadata in info.metadata
    )
    place = "TEXT" if as_text else _place(info.annotation)
    flags = f"--no-{flag}" if info.default is True else f"--{flag} {place}".rstrip()
    return Setting(
        group,
        field,
        flags,
        f"FORGE_{name.upper()}",
        "required" if info.is_required() else _default(info),
        info.description or "",
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
    return str(value) if value and not isinstance(value, SecretStr | dict) else ""


def _place(annotation: Any) -> str:  # noqa: ANN401  an annotation is of any kind
    if annotation is bool:
        return ""
    if get_origin(annotation) is dict:
        return "JSON"
    if get_origin(annotation) is Literal:
        return "|".join(filter(None, get_args(annotation)))
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return _place(get_args(annotation)[0])
    return PLACES.get(annotation, "TEXT")


def wanted(words: list[str]) -> bool:
    """Return whether a command line asks for help."""
    return "-h" in words or "--help" in words


def text(head: str, settings: Iterable[Setting]) -> str:
    """Return the help text."""
    parts = [head]
    for group, own in groupby(settings, key=lambda setting: setting.group):
        parts.append(f"{group}:")
        parts += [_entry(setting) for setting in own]
        parts.append("")
    return "\n".join(parts)


def _entry(setting: Setting) -> str:
    default = f" (default: {setting.default})" if setting.default not in ("", "no") else ""
    default = " (required)" if setting.default == "required" else default
    about = wrap(setting.about + default, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    return "\n".join([f"  {setting.flag}  [{setting.variable}]", *about])
