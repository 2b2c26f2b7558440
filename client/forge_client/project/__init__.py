"""A project's folder and forge.toml, and the jobs that they describe."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from forge_schema.model.quantities import MIB

from forge_client.errors import ClientError

FILE = "forge.toml"
IMAGE_WAYS = {"image", "image_tar", "dockerfile"}


class Requested:
    """What is asked of a job, however it was read."""

    if TYPE_CHECKING:
        command: list[str] | None

        def fields(self) -> dict[str, Any]: ...

    def spec(self, *, owner: str | None, name: str) -> dict[str, Any]:
        """Return the job in the queue's form: times in seconds, only fields that were given.

        Args:
            owner: the job's owner; None leaves it to the server.
            name: the job's name and experiment if the request has none.

        Raises:
            ClientError: there is no command.
        """
        if not self.command:
            raise no_command()
        called = {"name": name, "experiment": name}
        return {**({"owner": owner} if owner else {}), **called, **self.fields()}


class PlainRequest(Requested):
    """Fields of a job in the queue's form, which only the queue checks; all others are None.

    It stands for a `Request`, and for a `Project` without forge.toml, whose models take longer to
    build than everything else that a small folder needs.
    """

    include: Sequence[str] = ()

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any field
        return self._given.get(name)

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return it with some fields replaced."""
        return type(self)({**self._given, **update})

    def fields(self) -> dict[str, Any]:
        """Return the given fields."""
        return {name: value for name, value in self._given.items() if value is not None}


def in_unit(value: Any, unit: str, kind: type) -> Any:  # noqa: ANN401 - any type
    """Return a value as the queue has it: sizes in MiB, and what is whole there rounded up."""
    if unit == "_mb":
        return math.ceil(value / MIB)
    return math.ceil(value) if unit and kind is int else value


def no_command() -> ClientError:
    """Return the error for a job without a command."""
    return ClientError(
        "no command given",
        hint="write it after --, as in `forge submit . -- python train.py`, or as"
        " `command` in forge.toml",
        code="command_empty",
    )
