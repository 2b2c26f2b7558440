"""The errors that the client shows to people: no traceback, one line and a hint."""


class ClientError(Exception):
    """An error with a stable `code`, a `message`, a `hint` and the command's `exit_code`."""

    code = "client_error"
    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: str | None = None,
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.code
        self.exit_code = self.exit_code if exit_code is None else exit_code
