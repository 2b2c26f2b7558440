"""Errors for people: a stable code, what happened, and what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

from forge_schema.model.fields import Record


class ForgeError(Exception):
    """An error with a stable `code`, a `message` and a `hint` that says what to do."""

    code = "forge_error"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.code


class JobInvalid(ForgeError):
    """A request is not a job.

    Args:
        place: where in the request, such as `("jobs", 3)`.
        faults: pydantic's errors, at least one.
    """

    code = "spec_invalid"

    def __init__(self, place: tuple[str | int, ...], faults: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(str(faults[0]["msg"]))
        self.place = place
        self.faults = faults


class Problem(Record):
    """The body of every error response."""

    code: str
    message: str
    hint: str = ""
    request_id: str = ""
