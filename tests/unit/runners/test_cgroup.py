"""Control groups of both versions, as files: version 2 is not on every machine of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_worker.runners.docker.usage import Counts, counts_of, group_of

if TYPE_CHECKING:
    from pathlib import Path

ID = "8fbe05bc"
SPLIT = f"4:memory:/docker/{ID}\n2:cpu,cpuacct:/docker/{ID}\n0::/docker/{ID}\n"
UNIFIED = f"0::/system.slice/docker-{ID}.scope\n"


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_version_one_is_read(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "proc/7/cgroup": SPLIT,
            f"cg/cpu,cpuacct/docker/{ID}/cpuacct.usage": "3500000000\n",
            f"cg/memory/docker/{ID}/memory.usage_in_bytes": "1000\n",
            f"cg/memory/docker/{ID}/memory.max_usage_in_bytes": "9000\n",
            f"cg/memory/docker/{ID}/memory.stat": "cache 9\nactive_file 1\ninactive_file 2\n"
            "total_active_file 100\ntotal_inactive_file 200\n",
        },
    )
    group = group_of(7, ID, tmp_path / "proc", tmp_path / "cg")
    assert group is not None
    assert group.counts() == Counts(3.5, 1000, 300, 9000)
    (group.memory / "memory.usage_in_bytes").unlink()
    assert group.counts() is None


def test_version_two_is_read_also_where_the_kernel_keeps_no_peak(tmp_path: Path) -> None:
    place = f"cg/system.slice/docker-{ID}.scope"
    written(
        tmp_path,
        {
            "proc/7/cgroup": UNIFIED,
            f"{place}/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
            f"{place}/memory.current": "1000\n",
            f"{place}/memory.stat": "anon 5\nactive_file 10\ninactive_file 20\n",
        },
    )
    group = group_of(7, ID, tmp_path / "proc", tmp_path / "cg")
    assert group is not None
    assert group.counts() == Counts(2.5, 1000, 30, None)
    written(tmp_path, {f"{place}/memory.peak": "4000\n"})
    assert group.counts() == Counts(2.5, 1000, 30, 4000)


def test_the_group_of_another_process_or_out_of_sight_is_not_used(tmp_path: Path) -> None:
    written(tmp_path, {"proc/7/cgroup": "0::/user.slice\n", "proc/8/cgroup": UNIFIED})
    assert group_of(7, ID, tmp_path / "proc", tmp_path / "cg") is None
    assert group_of(8, ID, tmp_path / "proc", tmp_path / "cg") is None
    assert group_of(9, ID, tmp_path / "proc", tmp_path / "cg") is None


def test_engine_statistics_of_a_container_that_ended_say_nothing() -> None:
    assert counts_of({"memory_stats": {}, "cpu_stats": {"cpu_usage": {"total_usage": 0}}}) is None
    said = {
        "memory_stats": {"usage": 50, "stats": {"inactive_file": 7, "active_file": 1}},
        "cpu_stats": {"cpu_usage": {"total_usage": 2_000_000_000}},
    }
    assert counts_of(said) == Counts(2.0, 50, 8, None)
