"""Errors for people: a stable code, what happened, and what to do."""

import re
from collections.abc import Mapping, Sequence
from typing import Any


class ForgeError(Exception):
    """An error with a stable `code`, a `message` and a `hint` that says what to do."""

    code = "forge_error"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.code

    @property
    def hint(self) -> str:
        """What to do. Python's own tracebacks show it below the message."""
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        self._hint = hint
        self.__notes__ = [f"hint: {hint}"] if hint else []


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


# What pydantic says, and what to write instead.
PLAINLY = {
    "Input should be a valid integer, unable to parse string as an integer": "write a whole number",
    "Input should be a valid integer": "write a whole number",
    "Input should be a valid integer, got a number with a fractional part": "write a whole number",
    "Input should be a valid number, unable to parse string as a number": "write a number",
    "Input should be a valid number": "write a number",
    "Input should be a valid string": 'write a text, as in "name"',
    "Input should be a valid boolean": "write true or false",
    "Input should be a valid boolean, unable to interpret input": "write true or false",
    "Input should be a valid list": 'write a list, as in ["a", "b"]',
    "Input should be a valid dictionary": "write a table, as in { name = value }",
}
# The same for what is part of a message.
SHORTER = {
    "Input should be less than or equal to": "must be at most",
    "Input should be greater than or equal to": "must be at least",
    "Input should be": "must be",
    "Value should have at least 1 item after validation, not 0": "must not be empty",
}
# Pydantic counts the characters of a text as items.
LENGTH = re.compile(r"Value should have at (least|most) (\d+) items? after validation, not")


def plainly(message: str) -> str:
    """Return pydantic's message in our words, and without its prefix."""
    message = message.removeprefix("Value error, ")
    return shorter(PLAINLY.get(message, message))


def shorter(message: str) -> str:
    """Return a message with pydantic's phrases in fewer words."""
    for theirs, ours in SHORTER.items():
        message = message.replace(theirs, ours)
    return LENGTH.sub(r"must be at \1 \2 long, not", message)
