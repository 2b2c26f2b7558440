"""Jobs chosen by a query on the command line: previewed, confirmed, and then acted on."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest
from forge_client.cli.show.standing import search
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.states import Reason
from forge_schema.read import job_pages
from forge_schema.service import service
from support.client.command import FORGE, Command, command
from support.client.reaching import WAYS, reaching
from support.client.telling import told

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


@pytest.fixture
def forge(rig: Rig, tmp_path: Path) -> Command:
    """The command of ann, with direct access."""
    store_url = (tmp_path / "store").as_uri()
    return command(
        tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=store_url, FORGE_OWNER="ann"
    )


def test_ps_lists_what_matches(forge: Command, rig: Rig) -> None:
    mine, his = rig.submit(name="resnet-1", owner="ann"), rig.submit(name="resnet-2", owner="bob")

    def listed(*query: str) -> list[int]:
        rows = forge("ps", "-o", "jsonl", *query).stdout.splitlines()
        return [json.loads(row)["job_id"] for row in rows]

    assert listed("name:resnet*", "state:queued") == [his, mine]
    assert listed("state:queued owner:me") == [mine]
    assert listed("resnet-2") == [his]
    assert (listed(str(mine)), listed(str(mine), str(his))) == ([mine], [his, mine])
    assert listed(str(his), "owner:me") == []
    assert "matches; for the state, write state:running" in forge("ps", "running").stderr
    assert "matches; did you mean queue:default?" in forge("ps", "queue:defalt").stderr
    assert "matches; write state:failed" in forge("ps", "state=failed").stderr
    assert "write" not in forge("ps", "name").stderr
    told(forge("ps", "staet:failed"), 2, "'staet' is not a key; did you mean 'state'?", "owner")
    told(forge("ps", "state:faild"), 2, "did you mean 'failed'?", "queued, held, running")


@pytest.mark.parametrize("way", WAYS)
def test_a_search_by_name_says_how_far_it_looked(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(job_pages, "LOOK", 5)
    monkeypatch.setattr(service, "MOST_SEARCHED", 10)
    old, *_, newest = rig.submit(name="resnet"), *rig.submit_many(20, name="vit")
    with reaching(way, rig, tmp_path.as_uri()) as client:
        rows, more = search(client.backend, "name:resnet*", count=5)
        reached = newest - 9
        assert rows == []
        assert more == f"looked at the newest jobs, down to {reached}; --before {reached} continues"
        rows, more = search(client.backend, "resnet", count=5, before=reached)
        assert (rows, f"--before {reached - 10} continues" in more) == ([], True)
        rows, more = search(client.backend, "resnet", count=5, before=reached - 10)
        assert ([row.job_id for row in rows], more) == ([old], "")
        # What finds jobs to act on looks at all of them.
        assert [row.job_id for row in client.jobs("name:resnet*")] == [old]


def test_a_query_is_not_acted_on_unless_confirmed(forge: Command, rig: Rig) -> None:
    jobs = rig.submit_many(7, name="resnet", owner="ann")
    other = rig.submit(name="vgg", owner="ann")
    refused = forge("cancel", "name:res*")
    told(
        refused,
        2,
        "7 jobs to cancel",
        f"{jobs[-1]} 'resnet', queued, of ann",
        "and 2 more",
        "--yes",
    )
    assert rig.count("ready") == 8
    asked = forge("cancel", "res").stderr
    assert (
        "cancel all of them with 'name:res*' or, if they are a sweep's, with --sweep"
        in " ".join(asked.split())
    )
    done = forge("cancel", "name:res*", "--yes")
    assert (done.returncode, "7 cancelled, 0 asked to stop" in done.stderr) == (0, True), (
        done.stderr
    )
    assert [rig.state(job) for job in (*jobs, other)] == ["cancelled"] * 7 + ["ready"]
    again = forge("cancel", "name:res*", "-y")
    assert (again.returncode, again.stderr) == (0, "no unfinished job matches; nothing to cancel\n")


@pytest.mark.parametrize("act", [("ps",), ("runs",), ("cancel", "-y")], ids=lambda act: act[0])
def test_a_query_that_finds_nothing_says_what_the_start_of_the_name_would(
    act: tuple[str, ...], forge: Command, rig: Rig
) -> None:
    rig.submit_many(3, name="tiny-19", owner="ann", sweep="tiny-1a2b", experiment="tiny-x")
    rig.submit(name="other", owner="ann", sweep="tiny-3c4d")
    for query, said in (
        ("sweep:tiny", "'sweep:tiny*' would match 4 jobs"),
        ("name:tiny sweep:tiny", "'name:tiny* sweep:tiny*' would match 3 jobs"),
        ("experiment:tiny,no", "'experiment:tiny*,no*' would match 3 jobs"),
        ("19 state:queued", "'state:queued name:*19*' would match 3 jobs"),
    ):
        assert f"job matches; {said}" in " ".join(forge(*act, *query.split()).stderr.split())
    for query in ("sweep:huge", "sweep:iny*", "nowhere", "sweep:tiny state:running"):
        assert "would match" not in forge(*act, *query.split()).stderr


def test_only_failed_jobs_are_retried(forge: Command, rig: Rig) -> None:
    dead, over = rig.submit_many(2, name="x", owner="ann", max_failures=0)
    for grant, reason in zip(rig.worker().claim(2), ("exit_code", "succeeded"), strict=True):
        rig.finish(grant, Reason(reason))
    done = forge("retry", "owner:me", "--yes")
    assert "1 job queued again" in done.stderr
    assert [rig.state(job) for job in (dead, over)] == ["ready", "succeeded"]
    assert "no failed job matches" in forge("retry", "owner:me", "--yes").stderr


@pytest.mark.parametrize(("answer", "code", "state"), [("n", 1, "ready"), ("y", 0, "cancelled")])
def test_a_person_at_a_terminal_is_asked(
    forge: Command, rig: Rig, answer: str, code: int, state: str
) -> None:
    job = rig.submit(name="x", owner="ann")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            [FORGE, "cancel", "state:queued"],
            stdin=theirs, capture_output=True, text=True, check=False, cwd=forge.cwd,
            env={"PATH": os.environ["PATH"], "HOME": str(forge.home), **forge.env},
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Cancel 1 job? [y/N]" in done.stderr
    assert (done.returncode, rig.state(job)) == (code, state)


def test_the_start_of_a_name_is_confirmed_and_a_whole_one_is_not(forge: Command, rig: Rig) -> None:
    first, second = (rig.submit(name=name, owner="ann") for name in ("resnet", "vgg-large"))
    told(forge("cancel", "vgg"), 2, f"{second} 'vgg-large', queued, of ann", "--yes")
    assert rig.state(second) == "ready"
    assert forge("cancel", "resnet").returncode == 0
    assert forge("cancel", "vgg", "--yes").returncode == 0
    assert [rig.state(job) for job in (first, second)] == ["cancelled"] * 2


def test_ps_says_that_no_worker_can_run_a_job(forge: Command, rig: Rig) -> None:
    rig.worker()
    rig.submit(name="large", owner="ann", gpus=8)
    rig.submit(name="small", owner="ann")
    small, large = forge("ps").stdout.splitlines()[1:]
    assert "no worker can run it" in large
    assert "no worker" not in small


def test_sweeps_are_listed_and_named_by_their_start(forge: Command, rig: Rig) -> None:
    for name in ("rates-1a2b", "rates-3c4d", "depth-5e6f"):
        rig.submit_many(2, name="x", owner="ann", sweep=name)
    rows = [json.loads(row) for row in forge("sweep", "list", "-o", "jsonl").stdout.splitlines()]
    assert [(row["sweep"], row["jobs"]) for row in rows] == [
        ("depth-5e6f", 2),
        ("rates-3c4d", 2),
        ("rates-1a2b", 2),
    ]
    shown = json.loads(forge("sweep", "show", "depth", "-o", "json").stdout)
    assert shown["sweep"] == "depth-5e6f"
    told(forge("sweep", "show", "rates"), 2, "rates-3c4d or rates-1a2b", "forge sweep list")
    told(forge("sweep", "show", "none"), 3, "no sweep 'none'", "forge sweep list")
    told(forge("sweep", "show", "rtaes-1a2b"), 3, "no sweep", "did you mean 'rates-1a2b'? `forge")
    assert "did you mean sweep:rates-1a2b?" in forge("ps", "sweep:rtaes-1a2b").stderr


def test_what_cannot_be_meant_is_refused(forge: Command) -> None:
    told(forge("submit", ".", "--secret", "A=b", "--", "true"), 2, "takes only the name", "file A")
    unnamed = forge("submit", ".", "--name", "", "--", "true")
    assert unnamed.stderr.endswith("error: --name: must not be empty\n"), unnamed.stderr
    told(forge("template", "keep", "x"), 2, "there is nothing to save", "forge.toml")
    told(forge("template", "show", "x"), 3, "no template 'x'", "`forge template list`")


def test_commands_say_that_there_is_nothing_to_do_or_to_show(forge: Command, rig: Rig) -> None:
    job = rig.submit(name="x", owner="ann", sweep="rates-1a2b")
    for option in ("--sort", "--columns"):
        told(forge("runs", option, "priorty"), 2, "a column 'priorty'", "there are")
        told(forge("runs", option, "secons"), 2, "a column 'secons'", "did you mean seconds?")
    assert f"job {job} brought no list of packages" in forge("code", str(job), "--packages").stderr
    rig.queue.cancel(job)
    needs = forge("submit", ".", "--after-ok", str(job), "--", "true").stderr
    assert f"was cancelled: job {job} was cancelled" in needs
    assert "nothing to cancel" in forge("cancel", "--sweep", "rates", "--yes").stderr
    forge("queue", "pause", "default")
    assert "the queue default is paused" in forge("submit", ".", "--", "true").stderr
    rig.admin.limit_owner("ann", OwnerSettings(approve_cost=1))
    rig.submit_many(2, owner="ann")
    assert "1 queued, 2 held, 0 running; 2 jobs wait for approval" in forge("top", "--once").stdout


def test_the_table_of_runs_says_how_many_it_leaves_out(forge: Command, rig: Rig) -> None:
    rig.submit_many(26, name="x", owner="ann")
    for options, said in (
        ((), "the newest 25 runs; -n shows older ones too\n"),
        (("--sort", "job_id"), "the first 25 of 26 runs; see -n\n"),
        (("--sort", "job_id", "-n", "3"), ""),
    ):
        assert forge("runs", *options).stderr == said
    every = forge("runs", "-o", "jsonl")
    assert (len(every.stdout.splitlines()), every.stderr) == (26, "")
    # A field hides none of them.
    rig.submit(name="hides", owner="ann", parameters={"cost": 7, "amp": True})
    title, values = forge("runs", "name:hides").stdout.splitlines()
    assert [one in title.split() for one in ("parameters.cost", "COST", "amp")] == [True] * 3
    assert ("7" in values.split(), "true" in values.split()) == (True, True)


def test_jobs_are_tagged_noted_archived_and_deleted(forge: Command, rig: Rig) -> None:
    def done(*words: str) -> str:
        answer = forge(*words)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout + answer.stderr

    jobs = rig.submit_many(3, name="resnet", owner="ann", sweep="s1")
    waits = rig.submit(name="waits", owner="ann", after_any=jobs[:2])
    rig.queue.cancel(jobs[0])
    told(forge("tag", "add", "paper", "sweep:s1"), 2, "3 jobs to tag", "nothing was changed")
    told(forge("note", "sweep:s1", "x"), 2, "3 jobs to note:", "--yes")
    assert done("note", "sweep:s1", "x", "--yes").endswith("3 jobs noted\n")
    assert done("note", "sweep:s1") == "x\nx\nx\n"
    tagged = done("tag", "add", "paper,v1", "sweep:s1", "--yes")
    assert tagged.endswith("3 jobs tagged paper and v1\n")
    assert done("tag", "remove", "v1", str(jobs[0]), "@2") == "2 jobs no longer tagged v1\n"
    assert done("note", str(jobs[0]), "baseline for the paper") == f"job {jobs[0]} noted\n"
    assert done("note", str(jobs[0])) == "baseline for the paper\n"
    told(forge("note", "999"), 3, "there is no job 999")
    assert "baseline for the paper" in done("show", str(jobs[0]))
    assert json.loads(done("ps", "tag:paper tag:v1", "-o", "jsonl"))["tags"] == ["paper", "v1"]
    told(forge("tag", "remove", "nope", str(jobs[0])), 4, f"job {jobs[0]} has no tag nope", "paper")
    for act in (["tag", "add", "late"], ["archive"], ["delete", "--yes"], ["cancel"]):
        told(forge(*act, str(waits), "999"), 3, "there is no job 999; nothing was done")
    assert rig.state(waits) == "held"
    told(forge("tag", "add", "a b", str(jobs[0])), 2, "'a b' cannot be a tag", "spaces")
    told(forge("archive", str(jobs[1])), 4, f"job {jobs[1]} has not ended", "forge cancel")
    assert done("runs", "tag:v1", "--columns", "tags").split()[-3:] == ["2", "paper", "v1"]
    told(forge("archive", "sweep:s1"), 2, "1 job to archive:", "--yes")
    assert done("archive", "sweep:s1", "--yes").endswith(f"job {jobs[0]} archived\n")
    assert done("ps", "-o", "jsonl", "sweep:s1").count("job_id") == 2
    back = done("archive", "--undo", "sweep:s1", "-y")
    assert back.endswith(f"job {jobs[0]} brought back\n")
    told(forge("delete", str(jobs[0])), 2, "1 job to delete", "are deleted with", "--yes")
    refused = forge("delete", str(jobs[0]), "--yes")
    told(refused, 4, f"job {jobs[0]} is needed by job {waits}", f"forge cancel {waits}")
    rig.queue.cancel(waits)
    assert f"job {jobs[0]} deleted" in done("delete", str(jobs[0]), "--yes")
    told(forge("show", str(jobs[0])), 3, f"there is no job {jobs[0]}")
