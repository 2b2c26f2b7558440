"""`forge submit --nodes`: what becomes of it on the way to the queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.client.command import command
from support.gangs.elastic import members
from support.gangs.gang_workers import asleep, gang_worker
from support.gangs.runs import running

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


def test_a_gang_is_submitted_with_a_warning_if_there_are_too_few_machines(
    rig: Rig, tmp_path: Path
) -> None:
    for n in range(2):
        gang_worker(rig, f"w{n}", cpus=4, memory_mb=4096, disk_mb=20_000, labels={"zone": "eu"})
    forge = command(
        tmp_path,
        FORGE_DATABASE_URL=rig.url,
        FORGE_STORE_URL=(tmp_path / "store").as_uri(),
    )
    asked = ("--launcher", "torchrun", "--same", "zone", "--", "python", "train.py")
    done = forge("submit", ".", "--nodes", "3", *asked)
    said = " ".join(done.stderr.split())
    assert "only 2 of the 3 machines that it needs have the same value of zone (2 checked)" in said
    row = rig.row("SELECT spec, nodes, labels FROM job, shape WHERE shape.nodes > 1")
    assert [row["spec"][name] for name in ("nodes", "launcher", "same")] == [3, "torchrun", "zone"]
    assert (row["nodes"], row["labels"]["zone"]) == (3, "*")
    enough = forge("submit", ".", "--nodes", "2", *asked)
    assert "is queued: 2 machines, each with 1 CPU, " in enough.stderr
    assert "only 2 of" not in enough.stderr
    alone = forge("submit", ".", *asked)
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "error: same is for jobs on several machines: set nodes to 2 or more" in " ".join(
        alone.stderr.split()
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--nodes", "1001"), "nodes: must be at most 1000"),
        (("--nodes", "0"), "nodes: must be at least 1"),
        (
            ("--nodes", "2", "--launcher", "slurm"),
            "launcher: must be 'torchrun', 'accelerate', 'deepspeed', 'mpirun', 'ray' or 'none'",
        ),
    ],
)
def test_what_no_job_on_several_machines_can_be_is_refused_in_words(
    rig: Rig, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    store = (tmp_path / "store").as_uri()
    forge = command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=store)
    refused = forge("submit", ".", *options, "--", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"error: --{said}\n" in refused.stderr


def test_the_command_shows_the_machines_of_a_job(rig: Rig, tmp_path: Path) -> None:
    run = running(rig)
    forge = command(
        tmp_path,
        FORGE_DATABASE_URL=rig.url,
        FORGE_STORE_URL=(tmp_path / "store").as_uri(),
    )
    heading, row = forge("ps").stdout.splitlines()
    assert heading.split()[3:6] == ["NODES", "PROGRESS", "TIME"]
    assert "gpu-0, gpu-1 and gpu-2" in row
    shown = forge("show", str(run.job_id)).stdout
    assert "gpu-0, gpu-1 and gpu-2" in shown
    assert "3 machines, each with 1 CPU, 1 MiB of memory" in shown
    assert "gpu-0, gpu-1 and 1 more" in forge("top", "--once").stdout
    rows = [
        *json.loads(forge("ps", "-o", "json").stdout),
        json.loads(forge("show", "-o", "json", str(run.job_id)).stdout)["job"],
        *json.loads(forge("top", "--once", "-o", "json").stdout)["jobs"],
    ]
    assert [(one["nodes"], one["workers"]) for one in rows] == [
        (3, ["gpu-0", "gpu-1", "gpu-2"])
    ] * 3
    for verb in ("logs", "metrics", "result"):
        refused = forge(verb, str(run.job_id), "--rank", "3")
        assert refused.returncode == 3
        assert f"job {run.job_id} has no rank 3" in refused.stderr
    for rank in range(3):
        run.end(rank)
    submitted = forge("submit", ".", "--cpus", "2", "--", "true")
    assert "is queued: 2 CPUs, " in submitted.stderr
    assert "NODES" not in forge("ps", "--count", "1").stdout


def test_ps_counts_the_machines_that_a_range_runs_on(rig: Rig, tmp_path: Path) -> None:
    asleep(rig, 3)
    assert len(members(rig, rig.submit(nodes=2, max_nodes=4))) == 3
    waiting = rig.submit(nodes=2, max_nodes=4)
    forge = command(
        tmp_path,
        FORGE_DATABASE_URL=rig.url,
        FORGE_STORE_URL=(tmp_path / "store").as_uri(),
    )
    heading, *rows = forge("ps").stdout.splitlines()
    nodes = slice(heading.index("NODES"), heading.index("PROGRESS"))
    assert {row.split()[0]: row[nodes].strip() for row in rows} == {
        str(waiting): "2",
        str(waiting - 1): "3",
    }


def test_forge_toml_may_ask_for_a_gang(rig: Rig, tmp_path: Path) -> None:
    forge = command(
        tmp_path,
        FORGE_DATABASE_URL=rig.url,
        FORGE_STORE_URL=(tmp_path / "store").as_uri(),
    )
    text = 'command = "python train.py"\nnodes = 2\nlauncher = "ray"\n'
    (forge.cwd / "forge.toml").write_text(text, encoding="utf-8")
    assert forge("submit", ".").returncode == 0
    assert forge("submit", ".", "--nodes", "5").returncode == 0
    rows = rig.rows("SELECT spec FROM job ORDER BY id")
    assert [(row["spec"]["nodes"], row["spec"]["launcher"]) for row in rows] == [
        (2, "ray"),
        (5, "ray"),
    ]


def test_a_range_of_machines_is_written_with_two_dots(rig: Rig, tmp_path: Path) -> None:
    forge = command(
        tmp_path,
        FORGE_DATABASE_URL=rig.url,
        FORGE_STORE_URL=(tmp_path / "store").as_uri(),
    )
    text = 'command = "python train.py"\nnodes = "2..8"\nlauncher = "torchrun"\n'
    (forge.cwd / "forge.toml").write_text(text, encoding="utf-8")
    done = forge("submit", ".")
    assert "2 to 8 machines, each with" in " ".join(done.stderr.split())
    assert forge("submit", ".", "--nodes", "4").returncode == 0
    assert forge("template", "keep", "wide", ".").returncode == 0
    assert forge("submit", ".", "--template", "wide").returncode == 0
    assert forge("submit", ".", "--template", "wide", "--nodes", "3").returncode == 0
    rows = rig.rows("SELECT spec FROM job ORDER BY id")
    assert [(row["spec"]["nodes"], row["spec"].get("max_nodes")) for row in rows] == [
        (2, 8),
        (4, None),
        (2, 8),
        (3, None),
    ]


@pytest.mark.parametrize(
    ("nodes", "fault"),
    [
        ("8..2", "a range of machines cannot go from 8 to 2: the least comes first"),
        ("1..8", "a range of machines begins with 2 or more"),
        ("2-8", "nodes: write a number of machines, or a range of them such as 2..8"),
        ("0", "nodes: must be at least 1"),
        ("2..1001", "nodes: must be at most 1000"),
        ("2..99999", "nodes: must be at most 1000"),
    ],
)
def test_a_wrong_range_is_refused(rig: Rig, tmp_path: Path, nodes: str, fault: str) -> None:
    forge = command(
        tmp_path,
        FORGE_DATABASE_URL=rig.url,
        FORGE_STORE_URL=(tmp_path / "store").as_uri(),
    )
    done = forge("submit", ".", "--nodes", nodes, "--", "python", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert fault in " ".join(done.stderr.split())
    assert "packages:" not in done.stderr
    assert rig.count("job") == 0
