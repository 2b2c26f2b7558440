"""The errors that the client shows to users: one line and a hint, without a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

from forge_schema.model.errors import ForgeError

from forge_client.exit_codes import EXIT_CODES, ExitCode


class ClientError(ForgeError):
    """A `ForgeError` with the command's `exit_code`, by default the one of its `code`."""

    code = "client_error"

    def __init__(
        self, message: str, *, hint: str = "", code: str | None = None, exit_code: int | None = None
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        by_code = EXIT_CODES.get(self.code, ExitCode.FAILED)
        self.exit_code = int(by_code if exit_code is None else exit_code)


@contextmanager
def as_client_error() -> Iterator[None]:
    """Turn a `ForgeError` raised inside into a `ClientError`."""
    try:
        yield
    except ClientError:
        raise
    except ForgeError as error:
        raise ClientError(error.message, hint=error.hint, code=error.code) from error
