"""JUnit reports from several writers, and hostile files in their place."""

from __future__ import annotations

import io
from contextlib import suppress

import pytest
from forge_schema.model.attempt_records import Tested as OneTest
from forge_schema.model.states import Verdict
from forge_worker.job_io import results
from forge_worker.job_io.results import (
    BATCH_BYTES,
    MESSAGE_LENGTH,
    NAME_LENGTH,
    batch_of,
    parse_result,
    read_report,
)
from hypothesis import given
from hypothesis import strategies as st

# pytest 9, shortened.
PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" tests="4">
<testcase classname="tests.test_a" name="test_good[é]" time="0.001" />
<testcase classname="tests.test_a" name="test_bad" time="0.020">
<failure message="assert 1 == 2">def test_bad():
&gt;   assert 1 == 2</failure></testcase>
<testcase classname="tests.test_a" name="test_skipped" time="0.000">
<skipped type="pytest.skip" message="no GPU">test_a.py:9: no GPU</skipped></testcase>
<testcase classname="" name="tests.test_b" time="0.000">
<error message="collection failure">ImportError: x</error><system-out>printed</system-out>
</testcase></testsuite></testsuites>"""
# As others write them: one suite in another, no classname, grouped digits, two ends of one test.
OTHER = """<testsuite name="outer"><testsuite name="inner"><testcase name="a" time="1,234.5"/>
<testcase name="b" time="nan"><skipped/><failure>x</failure><rerunFailure>y</rerunFailure>
</testcase></testsuite><testcase/></testsuite>"""
LAUGHS = (
    '<!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 20}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + ']><testsuite><testcase name="&i;"/></testsuite>'
)
REACHES_OUT = '<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]><testsuite name="&a;"/>'


def read(text: str | bytes) -> tuple[list[tuple[object, ...]], str]:
    tests, fault = read_report(io.BytesIO(text.encode() if isinstance(text, str) else text))
    assert [test.number for test in tests] == list(range(len(tests)))
    return [(t.suite, t.name, t.verdict, t.seconds, t.message) for t in tests], fault


def test_what_pytest_writes() -> None:
    tests, fault = read(PYTEST)
    assert fault == ""
    assert tests == [
        ("tests.test_a", "test_good[é]", "passed", 0.001, None),
        ("tests.test_a", "test_bad", "failed", 0.02,
         "assert 1 == 2\ndef test_bad():\n>   assert 1 == 2"),
        ("tests.test_a", "test_skipped", "skipped", 0, "no GPU\ntest_a.py:9: no GPU"),
        ("pytest", "tests.test_b", "error", 0, "collection failure\nImportError: x"),
    ]  # fmt: skip


def test_what_others_write() -> None:
    assert read(OTHER) == (
        [
            ("inner", "a", "passed", 1234.5, None),
            ("inner", "b", "failed", None, "x"),
            ("outer", "", "passed", None, None),
        ],
        "",
    )


@pytest.mark.parametrize(
    ("text", "kept", "said"),
    [
        (LAUGHS, 0, "document type"),
        (REACHES_OUT, 0, "document type"),
        (PYTEST[: PYTEST.index("test_skipped")], 2, "not valid XML"),
        ("", 0, "not valid XML"),
        ("<a>" * 100_000, 0, "not valid XML"),
        (b"\xff\xfe\x00<", 0, "not valid XML"),
        ('<?xml version="1.0" encoding="nonsense"?><a/>', 0, "not valid XML"),
        ('<testcase name="\x01"/>', 0, "not valid XML"),
        ('<t><testcase name="&#xD800;"/></t>', 0, "not valid XML"),
        ("</testsuite>", 0, "not valid XML"),
    ],
)
def test_what_is_unsound_keeps_what_came_before(text: str | bytes, kept: int, said: str) -> None:
    tests, fault = read(text)
    assert (len(tests), said in fault) == (kept, True), fault


def test_what_is_too_much_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "é" * 50_000
    case = f'<testcase name="{long}"><failure message="{long}">{long}</failure></testcase>'
    ((suite, name, verdict, _, message),), fault = read(
        f'<testsuite name="{long}">{case}</testsuite>'
    )
    assert (suite, name, fault) == ("é" * NAME_LENGTH, "é" * NAME_LENGTH, "")
    assert (verdict, message) == ("failed", "é" * MESSAGE_LENGTH)
    monkeypatch.setattr(results, "MOST_TESTS", 3)
    tests, fault = read("<s>" + "<testcase/>" * 5 + "</s>")
    assert (len(tests), "more than 3" in fault) == (3, True)
    monkeypatch.setattr(results, "REPORT_BYTES", 100_000)
    tests, fault = read("<s><testcase/>" + " " * 200_000 + "</s>")
    assert (len(tests), "longer" in fault) == (1, True)


@given(
    st.binary(max_size=300) | st.text("<>/testcasename=\"&; '!?[]x", max_size=200).map(str.encode)
)
def test_nothing_that_a_job_writes_stops_the_reader(data: bytes) -> None:
    read(data)
    with suppress(ValueError):
        assert isinstance(parse_result(data), dict)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            '{"a": NaN, "b": 1e999, "c": [1, 2.5, null]}',
            {"a": None, "b": None, "c": [1, 2.5, None]},
        ),
        ("{}", {}),
        ("[1]", None),
        ("", None),
        ('{"a": "\\u0000\\ud800", "b": 1}', {"a": "\ufffd\ufffd", "b": 1}),
        ('{"a":' * 70 + "1" + "}" * 70, None),
        ("[" * 100_000, None),
        ('{"a": "' + "x" * (257 << 10) + '"}', None),
        ('{"a": ' + "9" * 5000 + "}", None),
    ],
)
def test_a_result_is_one_json_object_that_a_row_takes(text: str, kept: object) -> None:
    if kept is not None:
        assert parse_result(text.encode()) == kept
        return
    with pytest.raises(ValueError, match=r"\S"):
        parse_result(text.encode())


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"accuracy: 3", "begins with accuracy: 3"),
        (b'[{"a": 1}]', 'begins with [{"a": 1}]'),
        (b'{"a": 1}\n{"a": 2}\n', 'begins with {"a": 1}\n{"a": 2}'),
        (b'\xff{"a": 1}', 'begins with \ufffd{"a": 1}'),
        (b" \n", "is empty"),
    ],
)
def test_a_job_reads_what_its_result_should_be(data: bytes, found: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  the text is compared below
        parse_result(data)
    wanted = 'needs one JSON object, such as {"accuracy": 0.9}'
    assert str(error.value) == f"$FORGE_RESULT_FILE {wanted}, but {found}"


@pytest.mark.parametrize(
    ("message", "count", "first"),
    [("", 3, 3), ("", 5000, 1000), ("\u6f22" * 10_000, 40, 17), ("x" * BATCH_BYTES, 2, 1)],
)
def test_no_more_travels_at_once_than_a_server_takes(message: str, count: int, first: int) -> None:
    tests = [OneTest(n, "s", "t", Verdict.FAILED, message=message) for n in range(count)]
    assert batch_of(tests) == first
