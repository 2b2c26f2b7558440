"""Errors for people: a stable code, what happened, and what to do."""

from forge_schema.model.fields import Record


class ForgeError(Exception):
    """An error with a stable `code`, a `message` and a `hint` that says what to do."""

    code = "forge_error"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.code


class Problem(Record):
    """The body of every error response."""

    code: str
    message: str
    hint: str = ""
    request_id: str = ""
