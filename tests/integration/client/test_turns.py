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
