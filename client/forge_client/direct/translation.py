"""Show the errors of the queue and the store as the client's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from forge_schema.model.errors import ForgeError
from pydantic import ValidationError

from forge_client.errors import ClientError
from forge_client.project.request import refused


@contextmanager
def translated() -> Iterator[None]:
    """Turn every error raised inside into a `ClientError`."""
    try:
        yield
    except ClientError:
        raise
    except ForgeError as error:
        raise ClientError(error.message, hint=error.hint, code=error.code) from error
    except ValidationError as error:
        raise refused(error) from error
    except psycopg.Error as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ClientError(
            f"the database refused: {first_line}",
            hint="FORGE_DEBUG=1 shows where",
            code="database_error",
        ) from error
