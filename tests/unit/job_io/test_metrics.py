"""Valid metric lines, and the progress that a job reports."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
from forge_schema.database.pool import DatabaseUnreachable
from forge_worker.attempt import LiveAttempt
from forge_worker.job_io.metrics_file import LINE_BYTES, parse, progress_of
from forge_worker.job_io.metrics_tail import MetricsTail
from hypothesis import given, settings
from hypothesis import strategies as st
from support.workers.attempts import MetricsQueue, attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b'{"step": 1, "loss": 0.5}\n', {"step": 1, "loss": 0.5}),
        (b" {} \r\n", {}),
        (
            b'{"loss": NaN, "top": Infinity, "low": -Infinity}',
            {"loss": "NaN", "top": "Infinity", "low": "-Infinity"},
        ),
        (b'{"loss": 1e999, "low": -1e999}', {"loss": "Infinity", "low": "-Infinity"}),
        ('{"name": "ü ✓"}'.encode(), {"name": "ü ✓"}),
        (b'{"pair": "\\ud83d\\ude00"}', {"pair": "\U0001f600"}),
        (b"[1]", None),
        (b"1", None),
        (b"null", None),
        (b"", None),
        (b"no json", None),
        (b'{"step": 1', None),
        (b'{"half": "\\ud800", "loss": 1}', {"half": "\ufffd", "loss": 1}),
        (b'{"\\udfff\\uD83D\\ude00": 1}', {"\ufffd\U0001f600": 1}),
        (b'{"nul": "a\\u0000\\u0000", "loss": 1}', {"nul": "a\ufffd\ufffd", "loss": 1}),
        (b'{"text": "\\\\u0000\\\\\\u0000"}', {"text": "\\u0000\\\ufffd"}),
        (b'{"raw": "\xed\xa0\x80"}', None),
        (b'{"bytes": "\xff"}', None),
        (b'{"deep": ' + b"[" * 50_000, None),
        (b'{"many": ' + b"9" * 5000 + b"}", None),
        (b'{"long": "' + b"x" * LINE_BYTES + b'"}', None),
    ],
)
def test_line_is_an_object_or_nothing(line: bytes, values: dict[str, object] | None) -> None:
    assert parse(line) == values


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: json.dumps(text).encode()))
def test_no_line_breaks_the_parser(line: bytes) -> None:
    assert parse(line) is None or isinstance(parse(line), dict)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["step", "total", "progress", "loss"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.just(10**400)
        | st.text(max_size=3),
    )
)
def test_progress_is_a_share_or_nothing(values: dict[str, object]) -> None:
    share = progress_of(values)
    assert share is None or (0.0 <= share <= 1.0 and not math.isnan(share))


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ({"progress": 0.25}, 0.25),
        ({"progress": 7}, 1.0),
        ({"progress": -1}, 0.0),
        ({"step": 3, "total": 4}, 0.75),
        ({"step": 3, "total": 0}, None),
        ({"step": 3}, None),
        ({"step": True, "total": 1}, None),
        ({"progress": "0.5"}, None),
        ({"progress": 0.5, "step": 9, "total": 10}, 0.5),
        ({"step": 10**400, "total": 1}, None),
        ({}, None),
    ],
)
def test_progress_comes_from_a_share_or_from_a_step(
    values: dict[str, object], share: float | None
) -> None:
    assert progress_of(values) == share


@pytest.mark.parametrize(
    ("rest", "line", "skipped"),
    [
        (b'{"step": 2, "loss": 2.5}', [{"step": 2, "loss": 2.5}], 0),
        (b'{"step": 2, "lo', [], 1),
        (b"", [], 0),
    ],
)
def test_what_follows_the_last_line_feed_is_a_line_once_the_job_has_ended(
    tmp_path: Path, rest: bytes, line: list[dict[str, object]], skipped: int
) -> None:
    attempt, queue = attempt_of(some_grant(), tmp_path), MetricsQueue()
    tail = MetricsTail(attempt, queue)  # type: ignore[arg-type]
    attempt.folders.metrics.write_bytes(b'{"step": 1, "loss": 3}\n' + rest)
    tail.step()
    assert queue.lines == [{"step": 1, "loss": 3}]
    if line:
        queue.loses_answer = True
        with pytest.raises(DatabaseUnreachable):
            tail.finish()
    for _ in range(2):
        tail.finish()
        assert tail.skipped == skipped
    # Another agent, which adopts the job while it ends.
    adopted = LiveAttempt(attempt.grant, attempt.folders, claimed_s=attempt.claimed_s)
    MetricsTail(adopted, queue).finish()  # type: ignore[arg-type]
    assert queue.lines == [{"step": 1, "loss": 3}, *line]
