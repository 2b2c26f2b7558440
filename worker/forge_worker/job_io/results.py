"""A job's result, a JSON object, and the results of its tests.

Both are read after the job has ended, also if it failed.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import Any

import structlog
from forge_schema.model.attempt_records import AttemptRecord, ReportedResult, ReportedTests, Tested
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import DOCUMENT_BYTES, Document, storable
from forge_schema.model.quantities import counted, size_text
from forge_schema.model.states import JobKind
from pydantic import TypeAdapter, ValidationError

from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import JUNIT_FILE, RESULT_FILE
from forge_worker.files.safe_files import odd_kind, opened
from forge_worker.job_io.junit import read_report
from forge_worker.queue.gateway import Gateway

# A quarter of a server's limit for a request, and its limit of rows.
BATCH_BYTES = 1 << 19
BATCH_ROWS = 1000
QUOTED = 60
DOCUMENT: TypeAdapter[dict[str, Any]] = TypeAdapter(Document)

log = structlog.get_logger(__name__)


class ResultFiles:
    """Reads the two files once; what is invalid is reported in the job's log."""

    def __init__(self, attempt: LiveAttempt, gateway: Gateway) -> None:
        self._attempt = attempt
        self._gateway = gateway
        self._read = False
        self._result: dict[str, Any] | None = None
        self._tests: list[Tested] = []

    def store(self) -> None:
        """Store the results; repeated after a failure, it resumes where it stopped."""
        if not self._read:
            self._result, self._tests = self._look_for_result(), self._look_for_tests()
            self._read = True
        while self._tests and not self._attempt.lost:
            count = batch_of(self._tests)
            self._keep(ReportedTests(self._tests[:count]))
            del self._tests[:count]
        if self._result is not None and not self._attempt.lost:
            self._keep(ReportedResult(self._result))
            self._result = None

    def _keep(self, record: AttemptRecord) -> None:
        try:
            if not self._gateway.record(self._attempt.fence, record):
                self._attempt.lose()
        except ForgeError:
            raise
        except Exception:
            # Results that the database refuses must not keep the job from ending.
            log.exception("results_refused", job=self._attempt.fence.job_id)
            self._attempt.note("the queue refused the job's results")

    def _look_for_result(self) -> dict[str, Any] | None:
        control = self._attempt.folders.control
        if odd := odd_kind(control / RESULT_FILE):
            why = f"$FORGE_RESULT_FILE is {odd}, which Forge does not read"
            self._attempt.note(f"the result was not stored: {why}")
        with suppress(OSError), opened(control, RESULT_FILE) as file:
            document = file.read(DOCUMENT_BYTES + 1)
            try:
                result: dict[str, Any] = self._covered(parse_result(document))
            except ValueError as error:
                self._attempt.note(f"the result was not stored: {error}")
            else:
                return result
        return None

    def _look_for_tests(self) -> list[Tested]:
        spec, folders = self._attempt.grant.spec, self._attempt.folders
        named = spec.get("junit")
        where = (folders.work, named) if named else (folders.control, JUNIT_FILE)
        try:
            with opened(*where) as file:
                tests, fault = read_report(file)
        except OSError:
            tests, fault = [], ""
            if odd := odd_kind(where[0] / where[1]):
                fault = f"{named or '$FORGE_JUNIT_FILE'} is {odd}, which Forge does not read"
            elif named or spec.get("kind") == JobKind.TEST:
                fault = f"there is no file {named or '$FORGE_JUNIT_FILE'}"
        if fault:
            stored = f"{counted(len(tests), 'test')} {'was' if len(tests) == 1 else 'were'} stored"
            self._attempt.note(f"test report: {stored}: {fault}")
        return [
            replace(
                test,
                suite=self._covered(test.suite),
                name=self._covered(test.name),
                message=self._covered(test.message),
            )
            for test in tests
        ]

    def _covered(self, value: Any) -> Any:  # noqa: ANN401  whatever JSON holds
        """Return a value with the job's secrets redacted in every string."""
        match value:
            case str():
                return self._attempt.redactor.text(value)
            case dict():
                return {self._covered(name): self._covered(item) for name, item in value.items()}
            case list():
                return [self._covered(item) for item in value]
            case _:
                return value


def batch_of(tests: Sequence[Tested]) -> int:
    """Return how many of the first tests fit in one request."""
    size = 0
    for count, test in enumerate(tests[:BATCH_ROWS]):
        size += sum(len((text or "").encode()) for text in (test.suite, test.name, test.message))
        if size > BATCH_BYTES and count:
            return count
    return min(len(tests), BATCH_ROWS)


def parse_result(document: bytes) -> dict[str, Any]:
    """Return the JSON object that a job wrote; NaN and infinities become null.

    Raises:
        ValueError: it is not a JSON object, or is too large for a row; the text says why.
    """
    if len(document) > DOCUMENT_BYTES:
        raise ValueError(f"it is longer than {size_text(DOCUMENT_BYTES)}")
    try:
        values = json.loads(storable(document), parse_constant=lambda _: None, parse_float=_finite)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(_no_object(document)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(values, dict):
        raise ValueError(_no_object(document))  # noqa: TRY004  as for any other wrong content
    try:
        return DOCUMENT.validate_python(values)
    except ValidationError as error:
        raise ValueError(f"{error.errors()[0]['msg']}") from error


def _no_object(document: bytes) -> str:
    begin = document.strip()[:QUOTED].decode(errors="replace")
    what = f"begins with {begin}" if begin else "is empty"
    return f'$FORGE_RESULT_FILE needs one JSON object, such as {{"accuracy": 0.9}}, but {what}'


def _finite(digits: str) -> float | None:
    # 1e999 parses as infinity, which Postgres's JSON lacks.
    return value if isfinite(value := float(digits)) else None
