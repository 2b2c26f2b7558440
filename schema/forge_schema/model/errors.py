"""Errors for people: a stable code, what happened, and what to do."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any


class ErrorKind(StrEnum):
    """What went wrong, of which a command's exit code, HTTP's status and the SDK's class follow."""

    INVALID = "invalid"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    UNREACHABLE = "unreachable"
    SETUP = "setup"
    DENIED = "denied"


# The only list of them: an error whose code is in none is a failure.
CODES = {
    ErrorKind.INVALID: """
        annotation_invalid bundle_invalid bundle_too_large column_unknown command_empty cron_invalid
        file_changed file_unreadable filter_invalid folder_missing folder_not_empty
        ignore_file_invalid image_tar_unfit include_invalid job_ambiguous key_invalid link_broken
        link_circular link_leaves_folder matrix_invalid name_refused name_unknown not_a_folder
        not_picklable notification_invalid object_too_large option_invalid project_invalid
        public_key_invalid report_column_unknown report_too_slow requirements_invalid since_invalid
        spec_invalid state_unknown timezone_unknown too_many_jobs too_many_kept url_unusable usage
    """,
    ErrorKind.NOT_FOUND: """
        artifact_unknown attempt_unknown backup_missing checkpoint_unknown delivery_not_found
        input_unknown job_unknown key_not_found metric_unknown no_result not_uploaded
        notification_not_found object_missing owner_not_in_team queue_not_found rank_unknown
        report_unknown schedule_not_found sweep_unknown team_not_found template_not_found
        worker_not_found
    """,
    ErrorKind.CONFLICT: """
        already_over already_running checkpoint_unsound idempotency_conflict job_left_alone
        name_in_use name_taken not_changeable not_invited not_on_this_machine not_retryable
        not_running_job notification_withheld port_taken queue_in_use schedule_still_running
        sweep_uncapped worker_not_offline worker_unknown
    """,
    ErrorKind.UNREACHABLE: """
        database_unreachable not_running server_unreachable store_error store_unreachable
    """,
    ErrorKind.SETUP: """
        database_not_migrated database_not_named database_url_invalid extra_missing not_forge
        path_unknown proxy_unusable redirected server_invalid server_not_named settings_invalid
        signing_key_invalid store_not_named store_unfit store_url_invalid tls_ca_invalid tls_failed
    """,
    ErrorKind.DENIED: "api_key_missing forbidden login_over not_allowed url_refused",
}
KINDS = {code: kind for kind, codes in CODES.items() for code in codes.split()}


class ForgeError(Exception):
    """An error with a stable `code`, a `message` and a `hint` that says what to do.

    The code is the name of the class in words: `ObjectMissing` is `object_missing`, unless it says.
    """

    code = "forge_error"

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, message: str, hint: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.code

    @property
    def hint(self) -> str:
        """What to do. Python's own tracebacks show it below the message."""
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        self._hint = hint
        self.__notes__ = [f"hint: {hint}"] if hint else []


def nearest(name: str, known: Iterable[str]) -> str:
    """Return how the hint about an unknown name begins: with a known one that is like it."""
    close = get_close_matches(name, [*known], n=1)
    return f"did you mean {close[0]!r}? " if close else ""


class JobInvalid(ForgeError):
    """A request is not a job."""

    code = "spec_invalid"

    def __init__(self, place: tuple[str | int, ...], faults: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(str(faults[0]["msg"]))
        self.place = place
        self.faults = faults


# What pydantic says, and what to write instead.
PLAINLY = {
    "Input should be a valid integer, unable to parse string as an integer": "write a whole number",
    "Input should be a valid integer": "write a whole number",
    "Input should be a valid integer, got a number with a fractional part": "write a whole number",
    "Input should be a valid number, unable to parse string as a number": "write a number",
    "Input should be a valid number": "write a number",
    "Input should be a valid string": 'write a text, as in "name"',
    "Input should be a valid boolean": "write true or false",
    "Input should be a valid boolean, unable to interpret input": "write true or false",
    "Input should be a valid list": 'write a list, as in ["a", "b"]',
    "Input should be a valid dictionary": "write a table, as in { name = value }",
}
# The same for what is part of a message.
SHORTER = {
    "Input should be less than or equal to": "must be at most",
    "Input should be greater than or equal to": "must be at least",
    "Input should be": "must be",
    "Value should have at least 1 item after validation, not 0": "must not be empty",
}
# Pydantic counts the characters of a text as items.
LENGTH = re.compile(r"Value should have at (least|most) (\d+) items? after validation, not")
# A model, of whose name those who write a table know nothing.
INSTANCE = re.compile(r"(Input should be a valid dictionary) or (?:an )?instance of \w+")


def plainly(message: str) -> str:
    """Return pydantic's message in our words, and without its prefix."""
    message = INSTANCE.sub(r"\1", message.removeprefix("Value error, "))
    return shorter(PLAINLY.get(message, message))


def shorter(message: str) -> str:
    """Return a message with pydantic's phrases in fewer words."""
    for theirs, ours in SHORTER.items():
        message = message.replace(theirs, ours)
    return LENGTH.sub(r"must be at \1 \2 long, not", message)
