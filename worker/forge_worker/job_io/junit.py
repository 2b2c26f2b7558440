"""Read untrusted JUnit reports as a stream.

A document type is refused, so there are no entities to expand and nothing external to fetch.
Attributes and text are truncated to the stored length.
"""

from collections.abc import Iterator
from math import isfinite
from typing import BinaryIO
from xml.parsers import expat

from forge_schema.model.attempt_records import Tested
from forge_schema.model.quantities import counted, size_text
from forge_schema.model.states import Verdict

REPORT_BYTES = 64 << 20
MOST_TESTS = 100_000
BLOCK = 1 << 16
NAME_LENGTH = 1000
MESSAGE_LENGTH = 10_000
# The elements of a test case that set its verdict; the worst of several counts.
VERDICTS = {"skipped": Verdict.SKIPPED, "failure": Verdict.FAILED, "error": Verdict.ERROR}
ORDER = (Verdict.PASSED, Verdict.SKIPPED, Verdict.FAILED, Verdict.ERROR)


class ReportUnsound(Exception):
    """The report is invalid; the text says why, for the job's log."""


class _Reader:
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
    reader = _Reader()
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
