"""Moments on the command line: a time, or how long ago."""

from datetime import UTC, datetime, timedelta

from forge_client.backend import Backend
from forge_client.cli.options.quantity import seconds
from forge_client.errors import ClientError


def moment(option: str, text: str, backend: Backend) -> datetime:
    """Return the moment that an option means; a time without a zone is this machine's.

    How long ago is counted by the queue's clock: this machine's may be wrong.

    Raises:
        ClientError: it means none.
    """
    try:
        if "-" in text[1:]:
            return datetime.fromisoformat(text).astimezone(UTC)
        age = timedelta(seconds=seconds(text))
        return backend.overview().at - age
    except (ValueError, OverflowError) as error:
        raise ClientError(
            f"{option} {text!r} is neither a time nor how long ago",
            hint="write 10m, 2h, 3d, or a time as 2026-11-01T12:00",
            code="option_invalid",
        ) from error
