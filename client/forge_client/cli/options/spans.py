"""Spans of time on the command line."""

from datetime import timedelta
from typing import Annotated

import typer

from forge_client.cli.options.quantity import seconds
from forge_client.errors import ClientError

Expires = Annotated[
    str | None, typer.Option("--expires", help="After how long, such as 30d; never without it.")
]


def lasting(expires: str | None) -> timedelta | None:
    """Return for how long what an admin makes is valid; None is for ever.

    Raises:
        ClientError: it is no duration.
    """
    return None if expires is None else span("--expires", expires)


def span(option: str, text: str) -> timedelta:
    """Return an option's duration.

    Raises:
        ClientError: it is none, or below a second.
    """
    try:
        found = timedelta(seconds=seconds(text))
    except OverflowError:
        raise _wrong(f"{option} {text!r} is too long") from None
    except ValueError as error:
        raise _wrong(f"{option}: {error}") from error
    if found < timedelta(seconds=1):
        raise _wrong(f"{option} {text!r} is below a second")
    return found


def _wrong(message: str) -> ClientError:
    return ClientError(
        message,
        hint="write 12h or 30d",
        code="option_invalid",
    )
