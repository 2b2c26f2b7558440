"""The errors that the client shows to users: one line and a hint, without a traceback."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

from forge_schema.model.errors import ForgeError

from forge_client.exit_codes import EXIT_CODES, ExitCode

T = TypeVar("T")
# Seconds; beyond that, whoever waits had better know.
OUTAGE_S = 600.0


class ClientError(ForgeError):
    """A `ForgeError` with the command's `exit_code`, by default the one of its `code`."""

    code = "client_error"

    def __init__(
        self, message: str, *, hint: str = "", code: str | None = None, exit_code: int | None = None
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        by_code = EXIT_CODES.get(self.code, ExitCode.FAILED)
        self.exit_code = int(by_code if exit_code is None else exit_code)


class Outage:
    """Rides out an outage of the queue, for whoever waits for a job that goes on meanwhile."""

    def __init__(self) -> None:
        self._until: float | None = None

    def passes(self, error: Exception) -> bool:
        """Tell whether to ask again after this error."""
        if not isinstance(error, ClientError) or error.exit_code != ExitCode.UNREACHABLE:
            return False
        if self._until is None:
            self._until = monotonic() + OUTAGE_S
        return monotonic() < self._until

    def ask(self, call: Callable[[], T]) -> T | None:
        """Return the answer of a call; None if there is none now, but may be later.

        Raises:
            ClientError: there is another error, or the queue was away for too long.
        """
        try:
            answer = call()
        except ClientError as error:
            if not self.passes(error):
                raise
            return None
        self.over()
        return answer

    @property
    def is_new(self) -> bool:
        """Whether no error has passed since the last answer."""
        return self._until is None

    def over(self) -> None:
        """Note that the queue has answered."""
        self._until = None


@contextmanager
def as_client_error() -> Iterator[None]:
    """Turn a `ForgeError` raised inside into a `ClientError`."""
    try:
        yield
    except ClientError:
        raise
    except ForgeError as error:
        raise ClientError(error.message, hint=error.hint, code=error.code) from error
