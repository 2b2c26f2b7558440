"""What a notebook shows of jobs, and what a terminal shows instead."""

from __future__ import annotations

import pytest
from forge_client import Job
from forge_client.sdk.rows import Rows, follow
from forge_schema.model.results import SweepPoint
from forge_schema.model.states import StateWord
from support.client.backends import FakeBackend, job


def test_a_job_is_shown_as_a_table_with_its_progress() -> None:
    backend = FakeBackend([job(7, name="<b>", progress=0.4, worker="w1", workers=["w1"])])
    shown = Job(backend.as_backend(), 7)._repr_html_()
    assert "<td>7</td><td>&lt;b&gt;</td><td>running</td>" in shown
    assert "width:40%" in shown
    assert "on w1, 40% done" in shown
    assert Rows([job(7)])._repr_html_().startswith("<table>")


def test_a_list_is_shown_with_the_columns_that_hold_something() -> None:
    points = Rows(
        SweepPoint(
            job_id=n, name="x", state=StateWord.SUCCEEDED, parameters={"lr": n / 10}, result=None
        )
        for n in range(60)
    )
    shown = points._repr_html_()
    assert "<th>parameters.lr</th>" in shown
    assert "<th>result</th>" not in shown
    assert shown.count("<tr>") == 51
    assert "… and 10 more" in shown
    assert points.to_frame()["parameters.lr"].max() == 5.9


def test_a_terminal_gets_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend([job(1), job(2)])

    def end() -> None:
        if len(backend.asked) == 2:
            backend.states = [job(1, "succeeded", exit_code=0), job(2, progress=0.5)]
        if len(backend.asked) == 4:
            backend.states = [job(1, "succeeded", exit_code=0), job(2, "dead", reason="oom")]

    backend.look = end
    follow(backend.as_backend(), [1, 2], timeout=60)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0] == "job 1 'x' is running"
    assert lines[3] == "job 2 'x' is running, 50% done"
    with pytest.raises(TimeoutError):
        follow(FakeBackend([job(1)]).as_backend(), [1], timeout=0)
