"""The page of the jobs: its filter, acts on many, roles; the submit form."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from forge_client.project.bundle import pack
from forge_functions.dashboard.routes.runs import table
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.attempt_records import CheckpointRecord, MetricRecord
from forge_schema.model.states import Reason, Role, State
from forge_schema.queue.cancel_retry import MOST, JobActs, TooManyJobs
from forge_schema.queue.inputs import Uploads
from forge_schema.queue.templates import Templates
from forge_schema.read import runs as read_runs
from forge_schema.storage import keys
from support.http.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import httpx
    from pydantic import JsonValue
    from support.http.api import Api
    from support.queue.rig import Rig

EVIL = "<script>alert(1)</script>'\""
KEY = re.compile(r'name="idempotency_key" value="([^"]+)"')


@pytest.fixture
def ann(api: Api) -> Iterator[Guest]:
    guest = Guest(api).login("ann", Role.SUBMITTER)
    yield guest
    guest.close()


def listed(page: str) -> list[int]:
    """Return the ids of the jobs that a page lists."""
    return [int(found) for found in re.findall(r'<tr id="row-(\d+)"', page)]


def job_of(answer: httpx.Response) -> int:
    """Return the id of the job to whose page an answer leads."""
    return int(answer.headers["location"].rpartition("/")[2])


def counts(answer: httpx.Response) -> dict[str, str]:
    """Return the counts that an action reports."""
    assert answer.status_code == 303, answer.text
    said = parse_qs(urlsplit(answer.headers["location"]).query)
    return {name: values[0] for name, values in said.items() if values != ["0"]}


def test_the_list_shows_what_its_filter_says(api: Api, ann: Guest) -> None:
    mine = api.rig.submit(name=f"net {EVIL}", owner="ann")
    night = api.rig.submit(owner="ann", queue="night")
    his = api.rig.submit(owner="bob")
    assert listed(ann.page("/jobs")) == [night, mine]
    assert listed(ann.page("/jobs?q=owner:bob")) == []
    assert listed(ann.page("/jobs?part=rows&q=queue:n*")) == [night]
    shown = ann.page("/jobs?q=net")
    assert listed(shown) == [mine]
    assert "alert(1)</script>" not in shown
    assert listed(ann.page(f"/jobs?before={night}")) == [mine]
    root = Guest(api).login("root", Role.ADMIN)
    assert listed(root.page("/jobs")) == [his, night, mine]
    assert "state%3Aqueued%22" not in root.page("/jobs")
    assert 'href="/jobs?q=state%3Aqueued%2Crunning"' in root.page("/jobs?q=state:queued")
    root.close()


def test_a_filter_that_cannot_be_read_is_shown_with_its_place(ann: Guest) -> None:
    shown = ann.page("/jobs?q=net+staet:ready")
    assert "<mark>staet:ready</mark>" in shown
    assert "The keys are state, owner" in html.unescape(shown)
    assert 'value="net staet:ready"' in shown
    assert "<mark>" in ann.page(f"/jobs?q=%22{EVIL.replace(chr(34), '')}")


def ended(rig: Rig) -> int:
    """Return a dead job."""
    job = rig.submit(owner="ann", max_failures=0, priority=9)
    rig.finish(rig.worker().claim_one(), Reason.EXIT_CODE, exit_code=1)
    return job


def test_many_are_cancelled_and_retried_and_each_answer_is_honest(api: Api, ann: Guest) -> None:
    rig = api.rig
    dead, his = ended(rig), rig.submit(owner="bob")
    running = rig.submit(owner="ann", priority=8)
    rig.worker().claim_one()
    waiting, later = rig.submit(owner="ann"), rig.submit(owner="ann", delay_s=60)
    some = [dead, running, waiting, later, his]
    shown = ann.page("/jobs/confirm?act=cancel&" + "&".join(f"job={i}" for i in some))
    assert f'name="jobs" value="{later} {waiting} {running} {dead}"' in shown
    assert "Cancel 3 jobs" in shown
    ids = " ".join(map(str, some))
    first = {"did": "cancel", "cancelled": "2", "running": "1", "over": "1", "absent": "1"}
    assert counts(ann.act("/jobs/cancel", jobs=ids)) == first
    again = {"did": "cancel", "running": "1", "over": "3", "absent": "1"}
    assert counts(ann.act("/jobs/cancel", jobs=ids, q="x y")) == {**again, "q": "x y"}
    assert rig.state(his) is State.READY
    retried = {"did": "retry", "retried": "1", "unfinished": "1", "over": "2", "absent": "1"}
    assert counts(ann.act("/jobs/retry", jobs=ids)) == retried
    assert counts(ann.act("/jobs/retry", jobs=ids)) == {
        "did": "retry", "unfinished": "2", "over": "2", "absent": "1"
    }  # fmt: skip
    assert rig.actions(dead).count("retried") == 1
    assert "1 job queued again" in ann.page("/jobs?did=retry&retried=1")


def test_many_are_tagged_and_archived_and_the_states_are_counted(api: Api, ann: Guest) -> None:
    rig = api.rig
    dead, waiting, his = ended(rig), rig.submit(owner="ann"), rig.submit(owner="bob")
    some = f"{dead} {waiting} {his}"
    assert "Tag 2 jobs" in ann.page(f"/jobs/confirm?act=tag&job={dead}&job={waiting}&job={his}")
    tagged = {"did": "tag", "changed": "2", "absent": "1"}
    for _ in range(2):
        assert counts(ann.act("/jobs/tag", jobs=some, add="paper, v1", remove="v0")) == tagged
    assert ann.act("/jobs/tag", jobs=some, add="a:b").status_code == 422
    assert "2 jobs changed" in ann.page("/jobs?did=tag&changed=2&absent=1")
    assert listed(ann.page("/jobs?q=tag:v1")) == [waiting, dead]
    chips = ann.page("/jobs?part=chips")
    of_states = re.findall(r"(queued|failed)\s*<span class=.count.>([^<]*)", chips)
    assert of_states == [("queued", "1"), ("failed", "1")]
    assert 'class="count"' not in ann.page("/jobs?part=chips&q=tag:v1")
    root = Guest(api).login("root", Role.ADMIN)
    assert '<span class="count">2</span>' in root.page("/jobs?part=chips&q=state:failed")
    assert '<span class="count">' not in root.page("/jobs?part=chips&q=queue:none")
    root.close()
    archived = {"did": "archive", "changed": "1", "unended": "1", "absent": "1"}
    assert "Archive 1 job" in ann.page("/jobs/confirm?act=archive&all=1")
    for _ in range(2):
        assert counts(ann.act("/jobs/archive", jobs=some)) == archived
    assert listed(ann.page("/jobs")) == [waiting]
    assert "Bring back 1 job" in ann.page("/jobs/confirm?act=restore&all=1")
    assert counts(ann.act("/jobs/restore", jobs=str(dead))) == {"did": "restore", "changed": "1"}
    assert listed(ann.page("/jobs")) == [waiting, dead]


def test_all_that_match_are_those_that_the_act_is_for(api: Api, ann: Guest) -> None:
    rig = api.rig
    dead = ended(rig)
    waiting, _his = rig.submit(owner="ann", name="net"), rig.submit(owner="bob", name="net")
    shown = ann.page("/jobs/confirm?act=cancel&all=1")
    assert f'name="jobs" value="{waiting}"' in shown
    assert f'name="jobs" value="{dead}"' in ann.page("/jobs/confirm?act=retry&all=1&q=job")
    assert "This does not apply to any" in ann.page("/jobs/confirm?act=retry&all=1&q=state:running")
    assert ann.http.get("/jobs/confirm?act=retry&all=1&q=staet:x").status_code == 422


def test_an_admin_finds_and_approves_the_jobs_that_wait_for_it(api: Api, ann: Guest) -> None:
    api.rig.admin.limit_owner("ann", OwnerSettings(approve_gpu_hours=1))
    jobs = [api.rig.submit(owner="ann", gpus=2, timeout_s=3600) for _ in range(3)]
    held = api.rig.submit(owner="ann", after_ok=[jobs[0]])
    root = Guest(api).login("root", Role.ADMIN)
    assert "3 jobs wait for approval" in root.page("/")
    assert listed(root.page("/jobs?q=waits:approval")) == jobs[::-1]
    assert listed(root.page("/jobs?q=waits:jobs")) == [held]
    assert "for other jobs" in root.page("/jobs")
    confirm = root.page("/jobs/confirm?act=approve&all=1")
    assert "up to 2 h of GPU time" in " ".join(confirm.split())
    assert "Approve 3 jobs" in confirm
    assert f"/jobs/{jobs[0]}/approve" in root.page(f"/jobs/{jobs[0]}")
    assert root.act(f"/jobs/{jobs[0]}/approve").status_code == 303
    assert counts(root.act("/jobs/approve", jobs=f"{jobs[1]} {held}")) == {
        "did": "approve", "approved": "1", "unasked": "1",
    }  # fmt: skip
    assert "1 job approved" in root.page("/jobs?did=approve&approved=1&unasked=1")
    assert [api.rig.state(job) for job in jobs] == ["ready", "ready", "held"]
    assert "<form" in ann.page(f"/jobs/{jobs[2]}")
    assert "/approve" not in ann.page(f"/jobs/{jobs[2]}") + ann.page("/jobs")
    assert ann.http.get("/jobs/confirm?act=approve&job=1").status_code == 403
    assert ann.act("/jobs/approve", jobs=str(jobs[2])).status_code == 403
    root.close()


def test_acts_on_many_survive_a_lost_answer(rig: Rig) -> None:
    dead, waiting = ended(rig), rig.submit(owner="ann")
    acts = JobActs(rig.database, owner="ann", actor="user:ann")
    rig.database.lose("retry", "cancel")
    assert acts.retry([dead])["retried"] == 1
    # The repeat cannot tell its own effect from another's.
    assert acts.cancel([waiting]) == {"cancelled": 0, "running": 0, "over": 1, "absent": 0}
    assert (rig.actions(dead).count("retried"), rig.state(waiting)) == (1, State.CANCELLED)
    with pytest.raises(TooManyJobs):
        acts.cancel(range(1, MOST + 2))


def test_each_act_asks_for_its_role_and_its_token(api: Api, ann: Guest) -> None:
    job, his = api.rig.submit(owner="ann"), api.rig.submit(owner="bob")
    viewer = Guest(api).login("ann", Role.VIEWER)
    acts = ("/jobs/cancel", "/jobs/retry", "/submit", "/submit/preview")
    for path in (*acts, f"/jobs/{job}/cancel", f"/jobs/{job}/retry", f"/jobs/{job}/preempt"):
        assert viewer.act(path, jobs=str(job)).status_code == 403, path
        assert ann.form(path, jobs=str(job)).status_code == 403, path
        assert Guest(api).form(path, jobs=str(job)).status_code == 303, path
    for path in ("/jobs/confirm?act=cancel", "/submit"):
        assert viewer.http.get(path).status_code == 403, path
    assert "/submit" not in viewer.page(f"/jobs/{job}")
    assert 'method="post" action="/jobs' not in viewer.page(f"/jobs/{job}")
    for path in ("", "/log", "/series", "/artifact?path=x", "?part=status"):
        theirs, none = (ann.http.get(f"/jobs/{i}{path}") for i in (his, his + 1))
        assert (theirs.status_code, none.status_code) == (404, 404), path
        same = [
            re.sub(rf"(no job |jobs/){i}\b|[0-9a-f]{{32}}", "", a.text)
            for a, i in ((theirs, his), (none, his + 1))
        ]
        assert same[0] == same[1], path
    assert ann.http.get(f"/submit?from={his}").status_code == 404
    assert ann.act(f"/jobs/{his}/cancel").status_code == 404
    assert api.rig.state(job) is State.READY
    viewer.close()


def test_a_form_submits_once(api: Api, ann: Guest) -> None:
    found = KEY.search(ann.page("/submit"))
    assert found is not None
    fields = {"idempotency_key": found[1], "name": "net", "command": "python -c 'print(1)'"}
    fields |= {"gpus": "2", "vram": "39.5", "cpus": "4", "labels": "zone=eu*\n", "timeout": "1.5"}
    fields |= {
        "tags": "paper, v1",
        "experiment": "digits",
        "env": "A=b=c\nB=",
        "more": json.dumps({"grace_s": 5}),
        "max_losses": "0",
    }
    first, second = (ann.act("/submit", **fields) for _ in range(2))
    assert first.status_code == second.status_code == 303
    assert first.headers["location"] == second.headers["location"]
    job = int(first.headers["location"].rpartition("/")[2])
    told = api.rig.jobs.job(job)
    assert told["spec"]["command"] == ["python", "-c", "print(1)"]
    assert told["spec"]["env"] == {"A": "b=c", "B": ""}
    needs = told["spec"]["resources"]
    assert (needs["gpus"], needs["vram_mb"], needs["cpus"]) == (2, 40448, 4)
    assert (told["tags"], told["experiment"]) == (["paper", "v1"], "digits")
    assert (told["timeout_s"], told["max_losses"], told["spec"]["grace_s"]) == (90, 0, 5)
    changed = ann.act("/submit", **{**fields, "name": "other"})
    assert changed.status_code == 422
    assert "Submit it again for a second job" in changed.text
    renewed = KEY.search(changed.text)
    assert renewed is not None
    assert renewed[1] != found[1]
    assert api.rig.count("job") == 1
    again = ann.page(f"/submit?from={job}")
    for said in (
        'value="39.5"',
        "zone=eu*",
        "A=b=c",
        'value="paper v1"',
        "python -c",
        'value="1.5"',
        "&#34;grace_s&#34;: 5",
    ):
        assert said in again, said
    assert "forge submit . --name net" in html.unescape(again)


def test_a_job_that_is_submitted_again_starts_from_the_same_checkpoint(
    api: Api, ann: Guest
) -> None:
    rig = api.rig
    job = rig.submit(owner="ann")
    grant = rig.worker().claim_one()
    for number in range(2):
        assert rig.records.add_checkpoint(grant.fence, CheckpointRecord(number, f"k{number}", 1, 1))
    child = rig.submit(owner="ann", from_checkpoint={"job_id": job, "attempt": 1, "number": 0})
    form = html.unescape(ann.page(f"/submit?from={child}"))
    assert f"--from-checkpoint {job}:1.0" in form
    more = form.partition('name="more"')[2].partition(">")[2].partition("</textarea>")[0]
    made = ann.act("/submit", name="again", command="true", more=more)
    told = rig.jobs.job(int(made.headers["location"].rpartition("/")[2]))
    assert (told["source_job_id"], told["source_attempt"], told["source_number"]) == (job, 1, 0)
    rig.rows("DELETE FROM checkpoint WHERE number = 0")
    assert f"--from-checkpoint {job} " in html.unescape(ann.page(f"/submit?from={child}"))


def test_what_is_wrong_stands_beside_its_field_and_nothing_typed_is_lost(
    api: Api, ann: Guest
) -> None:
    Templates(api.rig.database, owner="ann", actor="user:ann").keep("nightly", {"command": ["x"]})
    wrong = {
        "gpus": ("two", "whole number"),
        "memory": ("-1", "greater than 0"),
        "labels": ("zone", "NAME=VALUE"),
        "command": ("python 'x", "closing quotation"),
        "more": ('{"colour": 1}', "colour"),
        "env": ("LD_PRELOAD=x", "reserved"),
        "queue": ("q" * 201, "200"),
        "config_name": ("none", "no template"),
    }
    for name, (text, said) in wrong.items():
        fields = {"name": EVIL, "command": "true", name: text, "image": "mine"}
        answer = ann.act("/submit", **fields)
        shown = html.unescape(answer.text)
        assert answer.status_code == 422, name
        fault = re.search(rf'<span class="fault" id="fault-{name}">([^<]*)', shown)
        assert fault is not None, name
        assert said in fault[1], name
        assert text in shown
        assert 'value="mine"' in shown
        assert "alert(1)</script>" not in answer.text
    alone = ann.act("/submit", command="true", gpu_model="a100*").text
    assert re.search(r'id="fault-gpus">[^<]*set gpus=1 too', alone)
    assert api.rig.count("job") == 0
    made = ann.act("/submit", config_name="nightly", name="n")
    assert api.rig.jobs.job(job_of(made))["spec"]["command"] == ["x"]
    preview = ann.act("/submit/preview", command="python train.py", gpus="1", name="a b").text
    assert "forge submit . --name 'a b' --gpu 1 -- python train.py" in html.unescape(preview)
    assert api.rig.count("job") == 1
    unnamed = {
        "python -u src/train.py --lr 1": "train",
        "python -m pkg.fit": "pkg.fit",
        "7": "job-7",
    }
    for command, name in unnamed.items():
        assert api.rig.jobs.job(job_of(ann.act("/submit", command=command)))["name"] == name


def test_runs_are_sorted_by_any_column_and_saved(
    api: Api, ann: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = api.rig.worker()
    found = []
    for n, best in enumerate((0.5, 0.25, 0.75)):
        few = {"also": n} if n else {}
        given = {"parameters": {**few, "lr": n / 10}, "experiment": "digits"}
        found.append(api.rig.submit(owner="ann", name=f"net {EVIL}", **given))
        fence = worker.claim_one().fence
        lines = [MetricRecord(0, 1, {"loss": best}), MetricRecord(1, 2, {"loss": 1.0, EVIL: 1})]
        assert api.rig.records.add_metrics(fence, lines)
    first, second, third = found
    api.rig.submit(owner="bob", experiment="his")
    shown = ann.page("/runs?q=experiment:digits")
    assert listed(shown) == [third, second, first]
    assert EVIL not in shown
    assert re.findall(r"sort=parameters\.(\w+)", shown) == ["lr", "also"]
    assert shown.count("<polyline points") == len(found)
    assert shown.count('<polyline class="tone-') == len(found)
    assert "/runs?q=experiment%3Ahis" not in shown
    # One that is the same from the first to the last is shown once; none has a revision.
    heads = re.findall(r"sort=(metrics[^&\"]*|revision)", shown)
    assert [head for head in heads if head.startswith("metrics.loss")] == [
        *("metrics.loss", "metrics.loss.best")
    ]
    assert len(heads) == 3
    assert listed(ann.page("/runs?q=experiment:digits&sort=metrics.loss.best")) == [
        second, first, third,
    ]  # fmt: skip
    backwards = ann.page("/runs?sort=parameters.lr&down=true")
    assert listed(backwards) == [third, second, first]
    assert 'aria-sort="descending"' in backwards
    assert "is not a key" in ann.page("/runs?q=experimemt:x")
    misspelt = ann.page("/runs?sort=metrics.lost")
    assert "No run here has the column metrics.lost" in misspelt
    assert listed(misspelt) == [third, second, first]
    chosen = "/runs?q=experiment:digits&sort=lr&columns=lr,+loss.best,submitted_at,lost"
    by_choice = ann.page(chosen)
    assert re.findall(r"sort=([\w.]+)[^\"]*\">([\w.]+)</a></th>", by_choice) == [
        ("job_id", "Job"), ("lr", "lr"), ("loss.best", "loss.best"),
        ("submitted_at", "submitted_at"),
    ]  # fmt: skip
    assert by_choice.count("columns=lr%2C+loss.best%2Csubmitted_at%2Clost") > 3
    assert "No run here has the column lost." in by_choice
    assert by_choice.count('data-label="submitted_at"><time ') == len(found)
    assert 'value="lr, loss.best, submitted_at, lost, metrics.loss"' in by_choice
    assert '<th scope="col" class="outline">loss</th>' in by_choice
    narrow = "/runs/runs.csv?q=experiment:digits&sort=lr&columns="
    assert ann.page(f"{narrow}lr,loss.best").splitlines()[:2] == ["lr,loss.best", "0.0,0.5"]
    assert ann.http.get(f"{narrow}lost").status_code == 422
    monkeypatch.setattr(table, "SHOWN", 2)
    assert "These are the first 2 of 3;" in ann.page("/runs?sort=submitted_at")
    assert "These are the newest 2;" in ann.page("/runs")
    # As the page has them.
    address = "/runs/runs.csv?q=&sort=parameters.lr&down=true"
    assert address.replace("&", "&amp;") in backwards
    saved = ann.page(address).splitlines()
    assert "metrics.loss.min" in saved[0]
    assert [line.partition(",")[0] for line in saved[1:]] == [
        str(j) for j in (third, second, first)
    ]
    monkeypatch.setattr(table, "SHOWN", 1)
    monkeypatch.setattr(read_runs, "MOST_RUNS", 2)
    assert "Only the newest 2 of those that match are sorted." in ann.page("/runs?sort=cost")


def test_the_list_shows_the_loss_of_what_runs_or_succeeded(api: Api, ann: Guest) -> None:
    worker = api.rig.worker()
    for loss in (0.5, 0.25):
        api.rig.submit(owner="ann")
        grant = worker.claim_one()
        lines = [MetricRecord(n, n, {"acc": 0.9, "loss": loss / (n + 1), EVIL: 1}) for n in (0, 1)]
        assert api.rig.records.add_metrics(grant.fence, lines)
    api.rig.finish(grant)
    api.rig.submit(owner="ann", gpus=8)
    api.rig.submit(owner="ann")
    page = ann.page("/jobs?part=rows")
    shown = re.findall(r'class="note mono">([^<]+)', page)
    assert shown == ["loss 0.125", "loss 0.25"]
    assert page.count("no worker can run it") == 1


def test_the_comparison_says_in_what_jobs_differ(api: Api, ann: Guest) -> None:
    digests = ("a" * 64, "b" * 64)
    for lr, digest in zip((0.1, 0.2), digests, strict=True):
        Uploads(api.rig.database).add("ann", digest)
        found = {"source": "uv.lock", "packages": 4, "lock": digest}
        given = {
            "command": ["python", "train.py", "--name", f"lr {lr}"],
            "parameters": {"lr": lr, "seed": 7},
            "environment": found,
        }
        api.rig.submit(owner="ann", name=EVIL, bundle_digest=digest, **given)
    shown = ann.page("/compare?job=1&job=2")
    rows = re.findall(
        r'class="mono">([^<]+)</th><td class="num">([^<]+)</td><td[^>]*>([^<]+)', shown
    )
    assert rows == [("lr", "0.1", "0.2"), ("lock", "aaaaaaaa", "bbbbbbbb")]
    lines = re.findall(r'class="line(?: other)?">([^<]+)', shown)
    assert [html.unescape(line) for line in lines] == [
        f"python train.py --name 'lr {lr}'" for lr in (0.1, 0.2)
    ]
    assert "forge diff 1 2" in shown
    assert EVIL not in shown
    turned = ann.page("/compare?job=1&job=2&baseline=2")
    assert re.findall(r'"mono">lr</th><td[^>]*>([^<]+)</td><td[^>]*>([^<]+)', turned) == [
        ("0.2", "0.1")
    ]
    assert "cannot be read" in shown
    said: dict[str, JsonValue] = {
        "step": 3,
        "total": 9,
        "progress": 0.3,
        "epoch": 1,
        "acc": 0.5,
        "loss": "NaN",
    }
    grant = api.rig.worker().claim_one()
    assert api.rig.records.add_metrics(grant.fence, [MetricRecord(0, 3, said)])
    alone = ann.page(f"/compare?job={grant.job_id}")
    assert re.findall(r'class="mono">([^<]+)</th><td[^>]*>([^<]+)', alone) == [
        *[("loss", "NaN"), ("acc", "0.5"), ("epoch", "1")]
    ]
    assert "Different" not in alone
    assert "forge diff" not in alone


def with_code(api: Api, folder: Path, files: Mapping[str, bytes], owner: str = "ann") -> int:
    """Submit a job with code, and return its id."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    bundle = pack(folder, folder.with_suffix(".tar.zst"), limit_bytes=1 << 30)
    api.services.store.put_file(keys.bundle(bundle.digest), bundle.path)
    Uploads(api.rig.database).add(owner, bundle.digest)
    return api.rig.submit(owner=owner, bundle_digest=bundle.digest)


def test_the_comparison_shows_how_code_differs(api: Api, ann: Guest, tmp_path: Path) -> None:
    evil, large = f"{EVIL}.py", bytes(300_000)
    files = {"train.py": b"import net\nlr = 0.1\n", "weights": b"\xff", "data": large, "same": b""}
    first = with_code(api, tmp_path / "a", files)
    files |= {"train.py": b"import net\nlr = 0.2\n", "weights": b"\xfe", "data": large[1:]}
    second = with_code(api, tmp_path / "b", files | {evil: EVIL.encode()})
    shown = ann.page(f"/compare?job={first}&job={second}")
    assert EVIL not in shown
    code = shown[shown.index('id="code"') :]
    said = html.unescape(re.sub("<[^>]+>", "", code))
    assert (
        "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n import net\n-lr = 0.1\n+lr = 0.2" in said
    )
    assert f"+++ b/{evil}\n@@ -0,0 +1 @@\n+{EVIL}" in said
    assert "Binary file weights differs" in said
    assert re.search(r"data\s+It is too large to be compared here", said)
    assert "same" not in re.findall(r"<summary[^>]*>([^<]+)", code)
    # Code is shown only to those who see both jobs.
    his = with_code(api, tmp_path / "c", files, "bob")
    assert ann.http.get(f"/compare?job={first}&job={his}").status_code == 404
