"""Errors that the client shows to users, one line and a hint without a traceback; exit codes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from time import monotonic
from typing import Any, Self, TypeVar

from forge_schema.model.errors import KINDS, ErrorKind, ForgeError

T = TypeVar("T")
# Seconds; beyond that, whoever waits had better know.
OUTAGE_S = 600.0


class ExitCode(IntEnum):
    """The exit status of `forge`; `submit --wait` otherwise exits with the job's own."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    SETUP = 6
    DENIED = 7
    TIMED_OUT = 124
    NO_RESULT = 125
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "bad input",
    ExitCode.NOT_FOUND: "not found",
    ExitCode.CONFLICT: "refused",
    ExitCode.UNREACHABLE: "unreachable",
    ExitCode.SETUP: "set up wrongly",
    ExitCode.DENIED: "not allowed",
    ExitCode.TIMED_OUT: "--wait: out of time",
    ExitCode.NO_RESULT: "--wait: no exit code of the job's own",
    ExitCode.INTERRUPTED: "Ctrl-C",
}

# Any other code is a failure.
EXIT_CODES = {
    ErrorKind.INVALID: ExitCode.USAGE,
    ErrorKind.NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorKind.CONFLICT: ExitCode.CONFLICT,
    ErrorKind.UNREACHABLE: ExitCode.UNREACHABLE,
    ErrorKind.SETUP: ExitCode.SETUP,
    ErrorKind.DENIED: ExitCode.DENIED,
}


class ClientError(ForgeError):
    """A `ForgeError` with the command's `exit_code`, by default the one of its `code`.

    It is made as the class below that stands for its exit code.
    """

    exits_with = ExitCode.FAILED

    def __new__(
        cls, *args: object, code: str | None = None, exit_code: int | None = None, **_: object
    ) -> Self:
        """Make an error of the class for its exit code."""
        status = _exit_code(code, ExitCode.FAILED) if exit_code is None else exit_code
        kind: Any = BY_EXIT_CODE.get(status, cls) if cls is ClientError else cls
        made: Self = super().__new__(kind, *args)
        return made

    def __init__(
        self, message: str, hint: str = "", *, code: str | None = None, exit_code: int | None = None
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        by_code = _exit_code(self.code, self.exits_with)
        self.exit_code = int(by_code if exit_code is None else exit_code)


class InvalidInput(ClientError):
    """What was given cannot be used: an option, a field of a job, a folder, `forge.toml`."""

    exits_with = ExitCode.USAGE


class NotFound(ClientError):
    """There is none of that name or id, or it is not yours to see."""

    exits_with = ExitCode.NOT_FOUND


class Conflict(ClientError):
    """It is refused in its current state, such as a retry of a job that runs."""

    exits_with = ExitCode.CONFLICT


class Unreachable(ClientError):
    """The server, the database or the store does not answer now; another try may succeed."""

    exits_with = ExitCode.UNREACHABLE


class Misconfigured(ClientError):
    """The setup is wrong: a URL, a certificate, a part that is not installed."""

    exits_with = ExitCode.SETUP


class NotAllowed(ClientError):
    """The API key is missing or wrong, or its role is too low."""

    exits_with = ExitCode.DENIED


BY_EXIT_CODE: dict[int, type[ClientError]] = {
    kind.exits_with: kind
    for kind in (InvalidInput, NotFound, Conflict, Unreachable, Misconfigured, NotAllowed)
}


def _exit_code(code: str | None, default: ExitCode) -> ExitCode:
    kind = KINDS.get(code or "")
    return EXIT_CODES[kind] if kind else default


class Outage:
    """Rides out an outage of the queue, for whoever waits for a job that goes on meanwhile."""

    def __init__(self) -> None:
        self._until: float | None = None

    def passes(self, error: Exception) -> bool:
        """Tell whether to ask again after this error."""
        if not isinstance(error, Unreachable):
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
        # The message says all of it: a chain would only show our own files to users of the SDK.
        raise ClientError(error.message, hint=error.hint, code=error.code) from error.__cause__
