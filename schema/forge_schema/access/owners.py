"""The names that an owner may get a key by."""

from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import OF_TEAM, has_folder


class OwnerInvalid(ForgeError):
    """A new owner's name cannot be that of a folder."""

    code = "option_invalid"


def check_owner(owner: str) -> None:
    """Check the name of somebody who gets a key: a worker's folder of secrets may have it.

    Raises:
        OwnerInvalid: no folder can have it, or it would be a team's.
    """
    if not has_folder(owner):
        raise OwnerInvalid(
            f"{owner!r} cannot be an owner's name, which is that of a folder of secrets",
            hint=f"choose one without /, that is not . or .., and does not begin with {OF_TEAM}",
        )
