"""The names that owners, teams, queues, workers and what an owner keeps may have."""

from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import NAME_LENGTH, OF_NAMES, is_name
from forge_schema.model.spec import OF_TEAM, has_folder, is_folder_name


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
    if not is_folder_name(name):
        raise NameInvalid(f"{name!r} cannot be the name of a worker", hint="choose one without /")


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
