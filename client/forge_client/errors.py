"""Errors that the client shows to users, one line and a hint without a traceback; exit codes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from time import monotonic
from typing import TypeVar

from forge_schema.model.errors import ForgeError

T = TypeVar("T")
# Of a wrong field; a command names itself instead of `forge submit`.
FIELDS_HINT = "`forge submit --help` lists the options"
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

# Exit codes by the `code` of an error; any other code is a failure.
EXIT_CODES = {
    "annotation_invalid": ExitCode.USAGE,
    "bundle_invalid": ExitCode.USAGE,
    "bundle_too_large": ExitCode.USAGE,
    "column_unknown": ExitCode.USAGE,
    "command_empty": ExitCode.USAGE,
    "cron_invalid": ExitCode.USAGE,
    "file_changed": ExitCode.USAGE,
    "file_unreadable": ExitCode.USAGE,
    "filter_invalid": ExitCode.USAGE,
    "folder_missing": ExitCode.USAGE,
    "folder_not_empty": ExitCode.USAGE,
    "ignore_file_invalid": ExitCode.USAGE,
    "image_tar_unfit": ExitCode.USAGE,
    "include_invalid": ExitCode.USAGE,
    "job_ambiguous": ExitCode.USAGE,
    "link_broken": ExitCode.USAGE,
    "link_circular": ExitCode.USAGE,
    "link_leaves_folder": ExitCode.USAGE,
    "matrix_invalid": ExitCode.USAGE,
    "name_refused": ExitCode.USAGE,
    "name_unknown": ExitCode.USAGE,
    "not_a_folder": ExitCode.USAGE,
    "notification_invalid": ExitCode.USAGE,
    "option_invalid": ExitCode.USAGE,
    "project_invalid": ExitCode.USAGE,
    "public_key_invalid": ExitCode.USAGE,
    "report_column_unknown": ExitCode.USAGE,
    "report_too_slow": ExitCode.USAGE,
    "requirements_invalid": ExitCode.USAGE,
    "since_invalid": ExitCode.USAGE,
    "spec_invalid": ExitCode.USAGE,
    "state_unknown": ExitCode.USAGE,
    "timezone_unknown": ExitCode.USAGE,
    "url_unusable": ExitCode.USAGE,
    "usage": ExitCode.USAGE,
    "artifact_unknown": ExitCode.NOT_FOUND,
    "attempt_unknown": ExitCode.NOT_FOUND,
    "backup_missing": ExitCode.NOT_FOUND,
    "checkpoint_unknown": ExitCode.NOT_FOUND,
    "input_unknown": ExitCode.NOT_FOUND,
    "job_unknown": ExitCode.NOT_FOUND,
    "key_not_found": ExitCode.NOT_FOUND,
    "owner_not_in_team": ExitCode.NOT_FOUND,
    "not_invited": ExitCode.DENIED,
    "team_not_found": ExitCode.NOT_FOUND,
    "metric_unknown": ExitCode.NOT_FOUND,
    "no_result": ExitCode.NOT_FOUND,
    "not_uploaded": ExitCode.NOT_FOUND,
    "queue_not_found": ExitCode.NOT_FOUND,
    "rank_unknown": ExitCode.NOT_FOUND,
    "report_unknown": ExitCode.NOT_FOUND,
    "schedule_not_found": ExitCode.NOT_FOUND,
    "notification_not_found": ExitCode.NOT_FOUND,
    "delivery_not_found": ExitCode.NOT_FOUND,
    "sweep_unknown": ExitCode.NOT_FOUND,
    "template_not_found": ExitCode.NOT_FOUND,
    "worker_not_found": ExitCode.NOT_FOUND,
    "already_over": ExitCode.CONFLICT,
    "already_running": ExitCode.CONFLICT,
    "idempotency_conflict": ExitCode.CONFLICT,
    "name_taken": ExitCode.CONFLICT,
    "not_on_this_machine": ExitCode.CONFLICT,
    "job_left_alone": ExitCode.CONFLICT,
    "not_changeable": ExitCode.CONFLICT,
    "not_retryable": ExitCode.CONFLICT,
    "sweep_uncapped": ExitCode.CONFLICT,
    "not_running_job": ExitCode.CONFLICT,
    "port_taken": ExitCode.CONFLICT,
    "worker_not_offline": ExitCode.CONFLICT,
    "database_unreachable": ExitCode.UNREACHABLE,
    "not_running": ExitCode.UNREACHABLE,
    "server_unreachable": ExitCode.UNREACHABLE,
    "store_unreachable": ExitCode.UNREACHABLE,
    "database_not_migrated": ExitCode.SETUP,
    "database_not_named": ExitCode.SETUP,
    "database_url_invalid": ExitCode.SETUP,
    "extra_missing": ExitCode.SETUP,
    "not_forge": ExitCode.SETUP,
    "path_unknown": ExitCode.SETUP,
    "proxy_unusable": ExitCode.SETUP,
    "redirected": ExitCode.SETUP,
    "server_invalid": ExitCode.SETUP,
    "server_not_named": ExitCode.SETUP,
    "settings_invalid": ExitCode.SETUP,
    "signing_key_invalid": ExitCode.SETUP,
    "store_not_named": ExitCode.SETUP,
    "store_unfit": ExitCode.SETUP,
    "store_url_invalid": ExitCode.SETUP,
    "tls_ca_invalid": ExitCode.SETUP,
    "tls_failed": ExitCode.SETUP,
    "api_key_missing": ExitCode.DENIED,
    "not_allowed": ExitCode.DENIED,
    "url_refused": ExitCode.DENIED,
}


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
        # The message says all of it: a chain would only show our own files to users of the SDK.
        raise ClientError(error.message, hint=error.hint, code=error.code) from error.__cause__
