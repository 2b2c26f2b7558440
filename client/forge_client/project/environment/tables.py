"""The tables of a pyproject.toml."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from forge_schema.model.quantities import names_text

from forge_client.errors import ClientError
from forge_client.project.environment.names import Picked, canonical, extras_of, name_of

PROJECT = "pyproject.toml"
PUBLIC, OF_PYPI = "https://pypi.org/simple", "https://files.pythonhosted.org/"


def table(path: Path, *keys: str) -> dict[str, Any]:
    """Return a table of a pyproject.toml; an empty one if it is not there.

    Raises:
        ClientError: the file is malformed.
    """
    import tomllib  # noqa: PLC0415 - only for such a file

    try:
        value: Any = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        raise wrong(f"{path}: {why}", "correct it, or submit with --no-install") from error
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def dependencies(path: Path) -> list[str]:
    """Return the dependencies in a pyproject.toml; none if it does not list them itself.

    Raises:
        ClientError: it is malformed.
    """
    listed = table(path, "project").get("dependencies")
    return listed if isinstance(listed, list) else []


def needed(path: Path, picked: Picked) -> list[str]:
    """Return the dependencies in a pyproject.toml, with those of its extras and groups.

    Raises:
        ClientError: it is malformed, or has no such extra or group.
    """
    extras = table(path, "project", "optional-dependencies")
    groups = table(path, "dependency-groups")
    known(path, "extra", picked.extras, extras)
    known(path, "group", picked.groups, groups)
    lists = [_named(extras, name) for name in picked.extras]
    lists += [_group(path, groups, name, ()) for name in picked.groups]
    own = canonical(str(table(path, "project").get("name", "")))
    requirements = [*dependencies(path), *(line for listed in lists for line in listed)]
    return list(dict.fromkeys(_without_itself(requirements, own, extras, ())))


def _without_itself(
    listed: Iterable[str], own: str, extras: dict[str, Any], above: Sequence[str]
) -> Iterator[str]:
    """Yield requirements, and in place of the project itself, as in `app[all]`, those of extras."""
    for requirement in listed:
        if not own or name_of(str(requirement)) != own:
            yield requirement
            continue
        for extra in map(canonical, extras_of(requirement)):
            if extra not in above:
                yield from _without_itself(_named(extras, extra), own, extras, (*above, extra))


def _named(tables: dict[str, Any], name: str) -> list[Any]:
    return next((listed for key, listed in tables.items() if canonical(key) == canonical(name)), [])


def _group(path: Path, groups: dict[str, Any], name: str, above: Sequence[str]) -> list[str]:
    """Return the dependencies of a group, with those of the groups that it includes."""
    if name in above:
        raise wrong(f"{path}: the group {name!r} includes itself", "correct it there")
    requirements: list[str] = []
    for entry in _named(groups, name):
        included = entry.get("include-group") if isinstance(entry, dict) else None
        if included and canonical(included) in map(canonical, groups):
            requirements += _group(path, groups, included, (*above, name))
        elif isinstance(entry, str):
            requirements.append(entry)
        else:
            what = f"includes {included!r}, which is not there" if included else f"has {entry!r}"
            raise wrong(f"{path}: the group {name!r} {what}", "correct it there")
    return requirements


def known(path: Path, what: str, asked: Iterable[str], there: Iterable[str]) -> None:
    """Check that a project has the extras or groups that are asked for.

    Raises:
        ClientError: it does not have one.
    """
    names = {canonical(name) for name in there}
    for name in asked:
        if canonical(name) not in names:
            have = f"it has {names_text(sorted(names), 5)}" if names else f"it has no {what}s"
            raise wrong(
                f"{path} has no {what} {name!r}: {have}",
                f"correct --{what}; a lock has only what was there when it was made",
            )


def none_of(path: Path, what: str, asked: Sequence[str]) -> None:
    """Refuse extras or groups for a kind of list that never has any.

    Raises:
        ClientError: some are asked for.
    """
    if asked:
        raise wrong(
            f"{path.name} has no {what}s, so there is no {asked[0]!r}",
            f"submit without --{what}, or name another list with --requirements",
        )


def wrong(message: str, hint: str) -> ClientError:
    """Return the error for a list that cannot be used."""
    return ClientError(message, hint=hint, code="requirements_invalid")
