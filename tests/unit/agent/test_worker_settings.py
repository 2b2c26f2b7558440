"""The worker's settings, and which runner they give a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from forge_worker import linux
from forge_worker.runners import choice
from forge_worker.runners.choice import NoRunner, Runners, available
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.process.runner import ProcessRunner
from forge_worker.runners.runner import ImageMissing
from forge_worker.settings.settings import WorkerSettings, clamp_to_machine
from pydantic import ValidationError
from pydantic_settings import CliApp

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = {"database_url": "postgresql://x/y", "store_url": "file:///store"}


def settings(**given: Any) -> WorkerSettings:  # noqa: ANN401  settings of all types
    return WorkerSettings(**{**NEEDED, **given})


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        ("", {}),
        ("zone=eu", {"zone": "eu"}),
        (" zone = eu , rack=7,", {"zone": "eu", "rack": "7"}),
        ("a=b=c", {"a": "b=c"}),
        ("empty=", {"empty": ""}),
    ],
)
def test_labels_are_pairs(
    monkeypatch: pytest.MonkeyPatch, words: str, labels: dict[str, str]
) -> None:
    assert settings(labels=words).labels == labels
    monkeypatch.setenv("FORGE_LABELS", words)
    assert settings().labels == labels
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in NEEDED.items()]
    assert CliApp.run(WorkerSettings, cli_args=[*flags, "--labels", words]).labels == labels


@pytest.mark.parametrize(
    "given",
    [
        {"labels": "zone"},
        {"runner": "vm"},
        {"cpus": 0},
        {"memory_mb": -1},
        {"heartbeat_s": 0},
        {"price_per_hour": -1},
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        settings(**given)


def test_flags_come_before_variables_and_variables_before_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**NEEDED, "poll_s": "7", "heartbeat_s": "8"}.items():
        monkeypatch.setenv(f"FORGE_{name.upper()}", value)
    read = CliApp.run(WorkerSettings, cli_args=["--heartbeat-s", "9", "--ephemeral"])
    assert (read.poll_s, read.heartbeat_s, read.lease_ttl_s) == (7, 9, 120)
    assert read.ephemeral


def test_name_is_made_up_once(tmp_path: Path) -> None:
    given = settings(worker_dir=tmp_path)
    name = given.name()
    assert name
    assert settings(worker_dir=tmp_path).name() == name
    assert settings(worker_dir=tmp_path, worker_name="mine").name() == "mine"


def test_name_file_that_a_crash_left_empty_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "name").touch()
    name = settings(worker_dir=tmp_path).name()
    assert name
    assert settings(worker_dir=tmp_path).name() == name


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    *,
    engine: bool,
    runner: str = "auto",
    allow: bool = False,
    image: str = "",
) -> Runners:
    monkeypatch.setattr(choice, "engine_answers", lambda: engine)
    return available(settings(runner=runner, allow_processes=allow, default_image=image))


@pytest.mark.parametrize(
    ("given", "words", "bare", "with_image"),
    [
        ({"engine": True}, "images,launchers", None, DockerRunner),
        ({"engine": True, "image": "i"}, "images,projects,launchers", DockerRunner, DockerRunner),
        ({"engine": True, "allow": True}, "images,projects,launchers", ProcessRunner, DockerRunner),
        (
            {"engine": True, "allow": True, "image": "i"},
            "images,projects,launchers",
            DockerRunner,
            DockerRunner,
        ),
        ({"engine": False, "allow": True}, "projects,launchers", ProcessRunner, None),
        (
            {"engine": True, "runner": "process", "allow": True},
            "projects,launchers",
            ProcessRunner,
            None,
        ),
        (
            {"engine": True, "runner": "docker", "allow": True},
            "images,launchers",
            None,
            DockerRunner,
        ),
    ],
)
def test_operator_decides_which_runner_a_job_gets(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    words: str,
    bare: type | None,
    with_image: type | None,
) -> None:
    runners = chosen(monkeypatch, **given)
    assert runners.words == words
    for image, kind in ((None, bare), ("debian", with_image)):
        if kind is None:
            with pytest.raises(ImageMissing):
                runners.choose(image)
        else:
            assert isinstance(runners.choose(image), kind)


@pytest.mark.parametrize(
    "given",
    [
        {"engine": False},
        {"engine": False, "runner": "docker", "allow": True},
        {"engine": True, "runner": "process"},
    ],
)
def test_machine_that_can_run_nothing_says_so(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    with pytest.raises(NoRunner):
        chosen(monkeypatch, **given)


GIB = 1 << 30
# What this process is in, and the files of its control groups.
GROUPS: dict[str, tuple[str, dict[str, str]]] = {
    "one tree": (
        "0::/pod/worker\n",
        {
            "cgroup.controllers": "cpu memory",
            "pod/memory.max": f"{3 * GIB}",
            "pod/cpu.max": "50000 100000",
            "pod/worker/memory.max": "max",
            "pod/worker/cpu.max": "max 100000",
        },
    ),
    "a tree for each kind": (
        "3:cpu,cpuacct:/pod\n2:memory:/pod\n0::/\n",
        {
            "memory/pod/memory.limit_in_bytes": f"{3 * GIB}",
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "cpu/pod/cpu.cfs_quota_us": "25000",
            "cpu/pod/cpu.cfs_period_us": "50000",
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "100000",
        },
    ),
    "names of outside": (
        "0::/kubepods/pod7\n",
        {
            "cgroup.controllers": "cpu memory",
            "memory.max": f"{3 * GIB}",
            "cpu.max": "50000 100000",
        },
    ),
}


@pytest.mark.parametrize(("own", "files"), GROUPS.values(), ids=GROUPS)
def test_what_a_container_may_use_is_less_than_the_machine_has(
    tmp_path: Path, own: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, root = tmp_path / "own", tmp_path / "root"
    assert linux.memory_limit(place, root) == float("inf")
    place.write_text(own)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    assert linux.memory_limit(place, root) == 3 * GIB
    assert linux.cpu_limit(place, root) == 0.5
    # macOS has no such call, and `forge up --workers 2` asks there, too.
    monkeypatch.delattr(os, "sched_getaffinity")
    assert linux.cpu_limit(tmp_path, root) == float("inf")


def test_jobs_inside_the_workers_limits_are_offered_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux, "memory_limit", lambda: 2.0 * GIB)
    monkeypatch.setattr(linux, "cpu_limit", lambda: 0.5)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    total_mb = psutil.virtual_memory().total >> 20
    for given, inside, offered in (
        ({}, True, (1.0, min(2048, total_mb) - 512)),
        ({}, False, (4.0, total_mb - 512)),
        ({"cpus": 3, "memory_mb": 1 << 30}, True, (3.0, min(2048, total_mb))),
    ):
        made = clamp_to_machine(settings(worker_dir=tmp_path, **given), inside=inside)
        assert (made.cpus, made.memory_mb) == offered


def test_a_user_without_a_home_is_told_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    linux.required()
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_007)
    with pytest.raises(SystemExit, match="user 2000000007 has no home\n  set HOME to a folder"):
        linux.required()
