"""Values on the command line: durations, points in time and labels."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from forge_schema.model.quantities import seconds

from forge_client.backend import Backend
from forge_client.cli.show.output import Format
from forge_client.errors import ClientError

FormatOption = Annotated[
    Format, typer.Option("--output", "-o", envvar="FORGE_OUTPUT", help="How to print the data.")
]
Expires = Annotated[
    str | None, typer.Option("--expires", help="Lifetime, e.g. 30d. Default: never expires.")
]
WorkerLabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", help="NAME=VALUE set by the admin; the worker cannot change it."),
]


def lasting(expires: str | None) -> timedelta | None:
    """Return how long a key or token is valid; None means forever.

    Raises:
        ClientError: it is not a duration.
    """
    return None if expires is None else span("--expires", expires)


def span(option: str, text: str) -> timedelta:
    """Return an option's duration.

    Raises:
        ClientError: it is not a duration, or is shorter than a second.
    """
    try:
        found = timedelta(seconds=seconds(text))
    except OverflowError:
        raise _invalid(f"{option} {text!r} is too long") from None
    except ValueError as error:
        raise _invalid(f"{option}: {text!r} is not a duration", "write 90s, 30m or 2d") from error
    if found < timedelta(seconds=1):
        raise _invalid(f"{option} {text!r} is below a second")
    return found


def moment(option: str, text: str, backend: Backend) -> datetime:
    """Return the point in time that an option names, by default in this machine's time zone.

    An age is subtracted from the queue's clock, since this machine's may be wrong.

    Raises:
        ClientError: it is neither a time nor an age.
    """
    try:
        if "-" in text[1:]:
            return datetime.fromisoformat(text).astimezone(UTC)
        age = timedelta(seconds=seconds(text))
        return backend.overview().at - age
    except (ValueError, OverflowError) as error:
        raise _invalid(
            f"{option} {text!r} is neither a time nor how long ago",
            "write 10m, 2h, 3d, or a time as 2026-11-01T12:00",
        ) from error


def _invalid(message: str, hint: str = "write 12h or 30d") -> ClientError:
    return ClientError(message, hint=hint, code="option_invalid")
