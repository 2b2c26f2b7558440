"""A job's result, a JSON object, and the results of its tests from untrusted reports of JUnit.

Both are read after the job has ended, also if it failed.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import Any, BinaryIO
from xml.parsers import expat

import structlog
from forge_schema.model.attempt_records import AttemptRecord, ReportedResult, ReportedTests, Tested
from forge_schema.model.errors import ForgeError
from forge_schema.model.fields import DOCUMENT_BYTES, Document, storable
from forge_schema.model.quantities import counted, size_text
from forge_schema.model.states import JobKind, Verdict
from pydantic import TypeAdapter, ValidationError

from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import JUNIT_FILE, RESULT_FILE
from forge_worker.files.safe_files import odd_kind, opened
from forge_worker.queue.gateway import Gateway

# A quarter of a server's limit for a request, and its limit of rows.
BATCH_BYTES = 1 << 19
BATCH_ROWS = 1000
QUOTED = 60
DOCUMENT: TypeAdapter[dict[str, Any]] = TypeAdapter(Document)
REPORT_BYTES = 64 << 20
MOST_TESTS = 100_000
BLOCK = 1 << 16
NAME_LENGTH = 1000
MESSAGE_LENGTH = 10_000
# The elements of a test case that set its verdict; the worst of several counts.
VERDICTS = {"skipped": Verdict.SKIPPED, "failure": Verdict.FAILED, "error": Verdict.ERROR}
ORDER = (Verdict.PASSED, Verdict.SKIPPED, Verdict.FAILED, Verdict.ERROR)

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


class ReportUnsound(Exception):
    """The report is invalid; the text says why, for the job's log."""


class _ReportReader:
    """Handles expat's events, and collects complete tests."""

    def __init__(self) -> None:
        self.tests: list[Tested] = []
        self._suites: list[str] = []
        self._case: dict[str, str] | None = None
        self._verdict = Verdict.PASSED
        self._text: list[str] = []
        self._said_length = 0
        self._listening = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in {"testsuite", "testsuites"}:
            self._suites.append(attributes.get("name", ""))
        elif tag == "testcase":
            self._case, self._verdict = attributes, Verdict.PASSED
            self._text, self._said_length = [], 0
        elif self._case is not None and tag in VERDICTS:
            self._judge(VERDICTS[tag], attributes)

    def _judge(self, verdict: Verdict, attributes: dict[str, str]) -> None:
        self._verdict = max(self._verdict, verdict, key=ORDER.index)
        self._listening = True
        self.text(attributes.get("message", ""))
        self.text("\n")

    def text(self, data: str) -> None:
        if self._listening and self._said_length < MESSAGE_LENGTH:
            self._text.append(data)
            self._said_length += len(data)

    def end(self, tag: str) -> None:
        if tag in {"testsuite", "testsuites"}:
            self._suites.pop()
        elif tag in VERDICTS:
            self._listening = False
        elif tag == "testcase" and self._case is not None:
            self._keep(self._case)
            self._case = None

    def _keep(self, case: dict[str, str]) -> None:
        if len(self.tests) == MOST_TESTS:
            raise ReportUnsound(
                f"it has more than {counted(MOST_TESTS, 'test')}; only the first are stored"
            )
        suite = case.get("classname") or next(filter(None, reversed(self._suites)), "")
        message = _cut("".join(self._text).strip(), MESSAGE_LENGTH)
        self.tests.append(
            Tested(
                number=len(self.tests),
                suite=_cut(suite, NAME_LENGTH),
                name=_cut(case.get("name", ""), NAME_LENGTH),
                verdict=self._verdict,
                seconds=_seconds(case.get("time", "")),
                message=message or None,
            )
        )


def read_report(file: BinaryIO) -> tuple[list[Tested], str]:
    """Return the tests in a report, and what is wrong with it, or "".

    Complete tests before the error are kept: a job that was stopped leaves half a report.
    """
    reader = _ReportReader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        for block, last in _blocks(file):
            parser.Parse(block, last)
    except ReportUnsound as error:
        return reader.tests, str(error)
    except (expat.ExpatError, ValueError, LookupError) as error:
        return reader.tests, f"it is not valid XML: {error}"
    return reader.tests, ""


def _blocks(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    size = 0
    while block := file.read(BLOCK):
        size += len(block)
        if size > REPORT_BYTES:
            raise ReportUnsound(f"it is longer than {size_text(REPORT_BYTES)}")
        yield block, False
    yield b"", True


def _refuse_doctype(*_: object) -> None:
    # So there are no entities to expand, and nothing external to fetch.
    raise ReportUnsound("it has a document type, which reports may not have")


def _cut(text: str, length: int) -> str:
    # The database cannot store half a surrogate pair.
    return text[:length].encode("utf-8", "replace").decode()


def _seconds(text: str) -> float | None:
    try:
        # Some tools group the digits: 1,234.5.
        seconds = float(text.replace(",", ""))
    except ValueError:
        return None
    return seconds if isfinite(seconds) and 0 <= seconds <= 1e15 else None  # noqa: PLR2004  as the wire has it
