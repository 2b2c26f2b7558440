"""A cap on the jobs of a sweep, by the SDK, over HTTP, and on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from support.client.command import command
from support.client.reaching import WAYS, reaching

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_submit_and_explain_a_job_that_waits_for_its_turn(
    way: str, rig: Rig, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        jobs = [client.submit(folder, "ls", sweep="s", parallel=2) for _ in range(4)]
        assert [rig.state(job.id).value for job in jobs] == ["ready", "ready", "held", "held"]
        assert client.backend.job(jobs[3].id).spec["parallel"] == 2
        third, last = jobs[2].explain(), jobs[3].explain()
        assert third.text == "it waits: 2 of the sweep s may run at once, and it is next"
        assert last.text == "it waits: 2 of the sweep s may run at once, and 1 is before it"
        (limit,) = last.limits
        assert (limit.code, limit.used, limit.limit, limit.before) == ("turn", 2, 2, 1)
        for wrong in ({"sweep": "s", "parallel": 0}, {"parallel": 2}):
            with pytest.raises(ClientError, match="parallel") as refused:
                client.submit(folder, "ls", **wrong)
            assert refused.value.exit_code == 2


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_change_the_cap_of_a_sweep(way: str, rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        jobs = [client.submit(folder, "ls", sweep="s", parallel=1) for _ in range(5)]
        findings = client.backend.findings
        assert findings.set_parallel("s", 2) == {"held": 3, "queued": 2}
        assert findings.set_parallel("s", 2) == {"held": 3, "queued": 2}
        last = jobs[4].explain()
        assert last.text == "it waits: 2 of the sweep s may run at once, and 2 are before it"
        assert last.remedies[0].command == "forge sweep show s --parallel 5"
        findings.set_parallel("s", 5)
        assert {rig.state(job.id).value for job in jobs} == {"ready"}
        client.submit(folder, "ls", sweep="free")
        for name, parallel, code in (("s", 0, 2), ("s", 10_001, 2), ("?", 1, 3), ("free", 1, 4)):
            with pytest.raises(ClientError) as refused:
                findings.set_parallel(name, parallel)
            assert refused.value.exit_code == code


def test_the_command_changes_the_cap_and_shows_the_sweep(rig: Rig, tmp_path: Path) -> None:
    forge = command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=(tmp_path / "s").as_uri())
    jobs = rig.submit_many(3, owner="ann", sweep="s", parallel=1)
    done = forge("sweep", "show", "s", "--owner", "ann", "--parallel", "2", "-o", "json")
    assert json.loads(done.stdout)["states"] == {"held": 1, "queued": 2}, done.stderr
    assert "s: at most 2 at once" in done.stderr
    assert [rig.state(job).value for job in jobs] == ["ready", "ready", "held"]
    assert forge("sweep", "show", "s", "--owner", "ann", "--parallel", "0").returncode == 2


def test_the_command_caps_a_benchmark_by_an_option_or_in_the_project(
    rig: Rig, tmp_path: Path
) -> None:
    forge = command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=(tmp_path / "s").as_uri())
    project = tmp_path / "project"
    project.mkdir()
    (project / "forge.toml").write_text("parallel = 2\n[matrix]\nn = [1, 2, 3, 4]\n")
    ask = ("benchmark", project, "-o", "json")
    for options, held in (((), 2), (("--parallel", "1"), 3), (("--parallel", "8"), 0)):
        done = forge(*ask, *options, "--", "ls", "{n}")
        assert done.returncode == 0, done.stderr
        jobs = json.loads(done.stdout)["job_ids"]
        assert [rig.state(job) for job in jobs] == ["ready"] * (4 - held) + ["held"] * held
    assert forge(*ask, "--parallel", "0", "--", "ls").returncode == 2
    # The cap of the project is of its benchmarks.
    alone = forge("submit", project, "--", "ls")
    assert rig.state(int(alone.stdout)) == "ready", alone.stderr
