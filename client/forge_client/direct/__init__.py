"""Forge through its database and store, without a server between; their errors as `ClientError`."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import getmembers, isfunction
from types import new_class
from typing import TypeVar, cast

import psycopg
from forge_schema.database.connections import EXAMPLE, SCHEMES, url_fault
from forge_schema.model.errors import JobInvalid
from pydantic import ValidationError

from forge_client.errors import ClientError, as_client_error

C = TypeVar("C")


@contextmanager
def translated() -> Iterator[None]:
    """Convert every error raised inside into a `ClientError`."""
    try:
        with as_client_error():
            try:
                yield
            except JobInvalid as error:
                # Only the commands that submit have read requests.
                from forge_client.project.request import refused  # noqa: PLC0415

                raise refused(error.faults[0], of_job=bool(error.place)) from None
            except ValidationError as error:
                from forge_client.project.request import invalid  # noqa: PLC0415 - as above

                raise invalid(error) from error
    except psycopg.Error as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ClientError(
            f"the database refused: {first_line}",
            hint="FORGE_DEBUG=1 shows where",
            code="database_error",
        ) from error


def raising_client_errors(kind: type[C]) -> type[C]:
    """Return a class whose public methods, inherited ones too, raise only `ClientError`."""
    public = {name: method for name, method in getmembers(kind, isfunction) if name[0] != "_"}
    methods = {name: translated()(method) for name, method in public.items()}
    own = {"__doc__": kind.__doc__, "__module__": kind.__module__, **methods}
    return cast("type[C]", new_class(kind.__name__, (kind,), {}, lambda body: body.update(own)))


def checked_url(url: str) -> str:
    """Return the URL if it is a Postgres URL.

    Raises:
        ClientError: it is not; the message omits the URL, which may contain a password.
    """
    bare = "" if url.startswith(SCHEMES) else "it does not begin with postgresql://"
    if fault := bare or url_fault(url):
        raise ClientError(
            f"this is not a database URL: {fault}", hint=EXAMPLE, code="database_url_invalid"
        )
    return url
