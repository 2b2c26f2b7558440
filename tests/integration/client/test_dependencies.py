"""Jobs that wait for others, by the SDK, over HTTP, and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client import Client, ClientError
from forge_schema.model.job import Dependency
from forge_schema.model.states import DependencyKind, Reason, Role
from support.client.command import command
from support.client.reaching import WAYS, key, reaching
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig

SPEC = {"name": "x", "owner": "ann", "command": ["ls"]}


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_submit_show_and_explain_a_job_that_waits(
    way: str, rig: Rig, tmp_path: Path
) -> None:
    parents = rig.submit_many(7, max_failures=0)
    folder = tmp_path / "project"
    folder.mkdir()
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        first = client.job(parents[0])
        child = client.submit(
            folder, "ls", after=first, after_ok=[client.job(parents[1]), *parents[2:]]
        )
        backend = client.backend
        assert [status.job_id for status in client.jobs(states=["held"])] == [child.id]
        assert backend.job(child.id).dependencies == [
            Dependency(job_id=parents[0], kind=DependencyKind.AFTER),
            *[Dependency(job_id=job, kind=DependencyKind.AFTER_OK) for job in parents[1:]],
        ]
        said = child.explain()
        assert (said.outlook, [limit.code for limit in said.limits]) == (
            "held", ["after", "after_ok"],
        )  # fmt: skip
        named = ", ".join(map(str, parents[1:5]))
        assert said.text == (
            f"it waits: job {parents[0]} must begin first;"
            f" jobs {named} and 2 more must succeed first"
        )
        for grant in rig.worker().claim(2):
            rig.finish(grant, Reason.TIMEOUT)
        assert backend.job(child.id).dependencies[1].met is False
        said = child.explain()
        assert said.text == f"it was cancelled before it began: job {parents[1]} failed"
        for refuse in (backend.check, backend.submit):
            with pytest.raises(ClientError) as refused:
                refuse([{**SPEC, "after_any": [999]}])
            assert (refused.value.code, refused.value.exit_code) == ("job_unknown", 3)


def test_only_an_admin_waits_for_another_owners_job(rig: Rig, tmp_path: Path) -> None:
    wanted = {"name": "x", "command": ["ls"], "after_any": [rig.submit(owner="bob")]}
    with served(server_settings(rig.url, (tmp_path / "store").as_uri())) as url:
        with (
            Client(url=url, api_key=key(rig, role=Role.SUBMITTER)) as ann,
            pytest.raises(ClientError, match="there is no job"),
        ):
            ann.backend.submit([wanted])
        with Client(url=url, api_key=key(rig, role=Role.ADMIN)) as admin:
            (job,) = admin.backend.submit([wanted])
    assert rig.state(job) == "held"


def test_the_command_takes_jobs_separated_by_commas_or_repeated(rig: Rig, tmp_path: Path) -> None:
    one, two, three = rig.submit_many(3)
    store_url = (tmp_path / "store").as_uri()
    forge = command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=store_url)
    done = forge("submit", ".", "--after-ok", f"{one},{two}", "--after-any", str(three), "--", "ls")
    assert "is held" in done.stderr
    shown = forge("show", done.stdout.strip()).stdout
    assert [f"after ok {one} {two}", f"after any {three}"] == [
        " ".join(line.split()) for line in shown.splitlines() if line.startswith("after")
    ]
    for grant in rig.worker().claim(3):
        if grant.job_id != three:
            rig.finish(grant)
    explained = " ".join(forge("explain", done.stdout.strip()).stdout.split())
    assert f"why it waits: job {three} must end first" in explained
    assert "is free for it" in explained
    assert "starts" not in explained
    refused = forge("submit", ".", "--after", "seven", "--", "ls")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "no job named 'seven'" in refused.stderr
