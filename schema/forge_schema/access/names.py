"""The names that owners, teams, queues, workers and what an owner keeps may have.

And those of the secrets that workers have, as far as a caller may know; never their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import NAME_LENGTH, OF_NAMES, is_name
from forge_schema.model.spec import FOR_ALL, OF_TEAM, SECRET, has_folder, is_folder_name, owner_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from forge_schema.database.pool import Database, Row

# Somebody who never submitted and was never configured: only the mark of the name is known.
NOBODY_KNOWN = "?"


class NameInvalid(ForgeError, ValueError):
    """Nothing can have this name. A ValueError too, as settings and models expect."""

    code = "option_invalid"


def check_name(name: str, of: str) -> None:
    """Check the name of something that is made, `of` what: "a queue".

    Raises:
        NameInvalid: it cannot be a name.
    """
    if not is_name(name) or len(name) > NAME_LENGTH:
        raise NameInvalid(f"{name!r} cannot be the name of {of}", hint=OF_NAMES)


def check_worker(name: str) -> None:
    """Check a worker's name, which stands in paths; `NameInvalid` if no worker can have it."""
    check_name(name, "a worker")
    _check_one_word(name, "a worker")
    if not is_folder_name(name):
        raise NameInvalid(f"{name!r} cannot be the name of a worker", hint="choose one without /")


def check_team(name: str) -> None:
    """Check a team's name, which people type; `NameInvalid` if no team can have it."""
    check_person(name, "a team")
    _check_one_word(name, "a team")


def _check_one_word(name: str, of: str) -> None:
    if any(map(str.isspace, name)):
        raise NameInvalid(f"{name!r} cannot be the name of {of}", hint="choose one without spaces")


def check_person(name: str, of: str = "an owner") -> None:
    """Check the name of an owner who gets a key or joins a team, or of a team: one of a folder.

    Raises:
        NameInvalid: no folder of secrets can have it, or it would be a team's.
    """
    check_name(name, of)
    if not has_folder(name):
        raise NameInvalid(
            f"{name!r} cannot be the name of {of}, which is that of a folder of secrets",
            hint=f"choose one without / that does not begin with {OF_TEAM}",
        )


def with_secrets(
    database: Database,
    workers: Sequence[Row],
    *,
    owner: str,
    scope: list[str] | None,
    team: str | None,
) -> list[Row]:
    """Return workers with their `secrets`: by name, whose they are.

    Those of owners beyond the caller's scope are left out of `labels` too.
    """
    marks = {mark for worker in workers for _, mark in _marks(worker["labels"])}
    known = {FOR_ALL: FOR_ALL}
    if marks - {FOR_ALL}:
        known |= _known(database, owner, scope, team)
    return [_shown(worker, known, everyone=scope is None) for worker in workers]


def _marks(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each label of a secret with each mark in it."""
    for label, value in labels.items():
        if label.startswith(SECRET):
            yield from ((label, mark) for mark in value.split(",") if mark)


def _known(
    database: Database, owner: str, scope: list[str] | None, team: str | None
) -> dict[str, str]:
    """Return the owners and teams that the caller sees, by their marks."""
    if scope is None:
        scope = [row["owner"] for row in database.rows("quotas", again=True, scope=None)]
        teams = [row["name"] for row in database.rows("teams", again=True, name=None)]
    else:
        # Its jobs may use them, whatever its key sees.
        (own,) = database.rows("person_view", again=True, owner=owner, actor="")
        teams = [name for name in (team, own["team"]) if name]
    owners = {owner_mark(name): name for name in [*scope, owner]}
    return owners | {OF_TEAM + owner_mark(name): OF_TEAM + name for name in teams}


def _shown(worker: Row, known: Mapping[str, str], *, everyone: bool) -> Row:
    held: dict[str, list[str]] = {}
    for label, mark in _marks(worker["labels"]):
        if mark in known or everyone:
            held.setdefault(label, []).append(mark)
    others = {name: it for name, it in worker["labels"].items() if not name.startswith(SECRET)}
    own = {label: worker["labels"][label] for label in held} if everyone else {
        label: FOR_ALL if FOR_ALL in marks else f",{','.join(marks)},"
        for label, marks in held.items()
    }  # fmt: skip
    secrets = {
        label.removeprefix(SECRET): [known.get(mark, NOBODY_KNOWN) for mark in marks]
        for label, marks in sorted(held.items())
    }
    return {**worker, "labels": others | own, "secrets": secrets}
