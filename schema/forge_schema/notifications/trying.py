"""One try to send: how it fails, and how long it may take."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from smtplib import SMTPException, SMTPRecipientsRefused, SMTPResponseException
from threading import Timer

from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text

# For connecting, and for the whole of a try afterwards, however slowly the receiver speaks.
DEADLINE_S = 10.0
# A mail server looks into a letter before it answers. RFC 5321 allows more; a claim outlasts it.
LETTER_S = 60.0
LONGEST_WHY = 300
FAILURES = (OSError, HTTPException, SMTPException, ValueError)


class NotSent(ForgeError):
    """A try to send failed; the receiver may ask for a pause of at least `least_s` seconds."""

    code = "not_sent"

    def __init__(self, message: str, *, least_s: int = 0) -> None:
        super().__init__(message)
        self.least_s = least_s


@contextmanager
def deadline(seconds: float, sock: Callable[[], socket.socket | None]) -> Iterator[None]:
    """End what a connection does after a time; a receiver that trickles has no end of its own.

    Raises:
        TimeoutError: it was ended.
    """
    late: list[bool] = []

    def end() -> None:
        late.append(True)
        if (opened := sock()) is not None:
            with suppress(OSError):
                # Not a TLS socket's own, which also changes what the other thread reads from.
                socket.socket.shutdown(opened, socket.SHUT_RDWR)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except FAILURES as error:
        if late:
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()


@contextmanager
def saying_why(seconds: float = DEADLINE_S) -> Iterator[None]:
    """Say of a try that may take some time why it failed.

    Raises:
        NotSent: it failed.
    """
    try:
        yield
    except FAILURES as error:
        raise NotSent(_why(error, seconds)) from error


def _why(error: Exception, seconds: float) -> str:
    """Return why a try failed, for the owner of a notification: no address that is not theirs."""
    # smtplib says of its own time-out that the connection was closed.
    if TimeoutError in {type(error), type(error.__context__)}:
        return f"the receiver did not answer within {duration_text(seconds)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the receiver's certificate is not trusted: {error.verify_message}"
    if isinstance(error, SMTPRecipientsRefused):
        code, text = next(iter(error.recipients.values()))
        return _mail_answer(code, text)
    if isinstance(error, SMTPResponseException):
        return _mail_answer(error.smtp_code, error.smtp_error)
    message = (
        str(error) if not isinstance(error, OSError) or error.errno is None else error.strerror
    )
    return (message or type(error).__name__)[:LONGEST_WHY]


def _mail_answer(code: int, text: bytes | str) -> str:
    answer = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"the mail server answered {code} {answer}"[:LONGEST_WHY]
