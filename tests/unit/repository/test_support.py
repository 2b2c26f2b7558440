"""Helpers that other tests rely on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support.services import require
from support.warm import process as warm

if TYPE_CHECKING:
    from support.waiting import Eventually


def test_a_missing_service_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="a Docker engine is needed here"):
        require(condition=False, what="a Docker engine")


def test_a_missing_service_skips_on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="a Docker engine is missing"):
        require(condition=False, what="a Docker engine")


def test_a_service_that_is_there_lets_the_test_go_on() -> None:
    require(condition=True, what="nothing")


def test_eventually_returns_the_first_truthy_answer(eventually: Eventually) -> None:
    answers = iter([None, 0, "", "ready", "too late"])
    assert eventually(lambda: next(answers), timeout=5, every=0) == "ready"


def test_eventually_takes_a_failed_assertion_for_not_yet(eventually: Eventually) -> None:
    numbers = iter(range(10))

    def probe() -> bool:
        assert next(numbers) == 3
        return True

    assert eventually(probe, timeout=5, every=0)


def test_eventually_gives_up_at_its_deadline_and_says_what_it_saw(eventually: Eventually) -> None:
    with pytest.raises(AssertionError, match=r"0\.05 s; last seen: \[\]"):
        eventually(list, timeout=0.05)


def test_test_processes_fork_programs_from_one_process_that_ends_with_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(warm, "_folder", lambda: tmp_path)
    first, second = (warm.Nursery(("json.tool",), ()) for _ in range(2))
    parent = parent_of_a_fork(first)
    assert parent_of_a_fork(second) == parent
    first._close()
    assert parent_of_a_fork(second) == parent
    second._close()
    # Nobody waits for it, so that it may stay a zombie.
    eventually(lambda: parent.status() == psutil.STATUS_ZOMBIE)
    third = warm.Nursery(("json.tool",), ())
    assert parent_of_a_fork(third) != parent
    third._close()


def parent_of_a_fork(nursery: warm.Nursery) -> psutil.Process:
    read, write = os.pipe()
    with Path(os.devnull).open("w", encoding="utf-8") as null:
        streams = [read, null.fileno(), null.fileno()]
        pid, told = nursery.fork({"argv": ["json.tool"], "cwd": "/", "env": {}}, streams)
    # It lives until it has read its input.
    parent = psutil.Process(pid).parent()
    assert parent is not None
    os.close(write)
    os.close(read)
    with told:
        told.recv(4)
    return parent
