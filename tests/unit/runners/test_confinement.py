"""Where the control groups of jobs can be made, under both versions of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from forge_worker.runners.process.confinement import Confinement, CpuTable, enter, parents

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own"


def test_version_1_has_a_place_for_each_kind(tmp_path: Path, own: Path) -> None:
    for place in ("cpu/slice", "memory", "devices"):
        (tmp_path / place).mkdir(parents=True)
    own.write_text("4:devices:/\n3:memory:/host/only\n2:cpu,cpuacct:/slice\n1:name=systemd:/x\n")
    places = {"cpu": tmp_path / "cpu" / "slice", "memory": tmp_path / "memory"}
    assert parents(own, tmp_path) == places


@pytest.mark.parametrize("delegated", [True, False])
def test_version_2_has_one_beside_the_agent_if_that_was_given_to_it(
    tmp_path: Path, own: Path, *, delegated: bool
) -> None:
    unit = tmp_path / "system" / "worker"
    (unit / "agent").mkdir(parents=True)
    for place in (tmp_path, unit):
        (place / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    own.write_text("0::/system/worker/agent\n")
    if delegated:
        os.setxattr(unit, "user.delegate", b"1")
    expected = dict.fromkeys(("cpu", "memory", "pids"), unit) if delegated else {}
    assert parents(own, tmp_path) == expected
    asked = unit / "cgroup.subtree_control"
    assert (asked.read_text() == "+cpu +memory +pids") if delegated else not asked.exists()


def test_no_groups_at_all(tmp_path: Path, own: Path) -> None:
    assert parents(own, tmp_path) == {}
    none = Confinement({})
    assert none.entrances == []
    none.end()
    assert none.oom_kills() == 0


@pytest.mark.parametrize(
    ("files", "written"),
    [(("cgroup.procs", "tasks"), "tasks"), (("cgroup.procs",), "cgroup.procs")],
)
def test_a_process_joins_by_the_quickest_way_that_its_kernel_has(
    tmp_path: Path, files: tuple[str, ...], written: str
) -> None:
    for name in files:
        (tmp_path / name).touch()
    enter(Confinement({"cpu": tmp_path, "pids": tmp_path}).entrances)
    assert {name: (tmp_path / name).read_text() for name in files} == {
        name: "0" if name == written else "" for name in files
    }


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("memory.events", "low 0\noom 3\noom_kill 2\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
)
def test_kills_of_the_kernel_are_counted_in_both(tmp_path: Path, file: str, said: str) -> None:
    (tmp_path / file).write_text(said)
    assert Confinement({"memory": tmp_path}).oom_kills() == 2


def test_jobs_get_the_cpus_that_the_fewest_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    table = CpuTable()
    first, second = table.take(1.5), table.take(2)
    assert (first, second) == ((0, 1), (2, 3))
    table.give_back(second)
    assert table.take(0.5) == (2,)
    assert len(table.take(99)) == 4
