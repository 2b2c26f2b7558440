"""From the errors of the queue and the store to those that the client shows."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from forge_schema.model.errors import ForgeError
from pydantic import ValidationError

from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode
from forge_client.project.request import refused

EXIT_CODES = {
    "job_unknown": ExitCode.NOT_FOUND,
    "worker_not_found": ExitCode.NOT_FOUND,
    "report_unknown": ExitCode.NOT_FOUND,
    "report_too_slow": ExitCode.USAGE,
    "report_column_unknown": ExitCode.USAGE,
    "since_invalid": ExitCode.USAGE,
    "sweep_unknown": ExitCode.NOT_FOUND,
    "checkpoint_unknown": ExitCode.NOT_FOUND,
    "not_uploaded": ExitCode.NOT_FOUND,
    "key_not_found": ExitCode.NOT_FOUND,
    "template_not_found": ExitCode.NOT_FOUND,
    "name_taken": ExitCode.CONFLICT,
    "worker_not_offline": ExitCode.CONFLICT,
    "idempotency_conflict": ExitCode.CONFLICT,
    "not_retryable": ExitCode.CONFLICT,
    "database_unreachable": ExitCode.UNREACHABLE,
    "store_unreachable": ExitCode.UNREACHABLE,
    "database_not_migrated": ExitCode.SETUP,
    "store_url_invalid": ExitCode.SETUP,
}


@contextmanager
def translated() -> Iterator[None]:
    """Turn what goes wrong inside into a `ClientError`."""
    try:
        yield
    except ForgeError as error:
        exit_code = EXIT_CODES.get(error.code, ExitCode.FAILED)
        raise ClientError(
            error.message, hint=error.hint, code=error.code, exit_code=exit_code
        ) from error
    except ValidationError as error:
        raise refused(error) from error
    except psycopg.Error as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ClientError(
            f"the database refused: {first_line}",
            hint="FORGE_DEBUG=1 shows where",
            code="database_error",
        ) from error
