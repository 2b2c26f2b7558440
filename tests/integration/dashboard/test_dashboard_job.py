"""The page of one job: its attempts, its log by pieces, its files, its acts."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from forge_functions.dashboard import log_pieces
from forge_schema import zstd
from forge_schema.model import attempt_records
from forge_schema.model.attempt_records import (
    ArtifactRecord,
    CheckpointRecord,
    LogChunkRecord,
    MetricRecord,
)
from forge_schema.model.lease import Usage
from forge_schema.model.states import Phase, Reason, Role, State, Verdict
from forge_schema.read import jobs
from forge_schema.storage.keys import AttemptKeys
from support.gangs.runs import ended, formed, gang, running, stop
from support.http.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forge_schema.model.lease import Grant
    from support.http.api import Api

EVIL = "<script>alert(1)</script>"
PAGE = "https://wandb.ai/ann/digits/runs/1"


@pytest.fixture
def ann(api: Api) -> Iterator[Guest]:
    guest = Guest(api).login("ann", Role.SUBMITTER)
    yield guest
    guest.close()


class Output:
    """An attempt's output: chunks that are stored, and indexed when a test says so."""

    def __init__(self, api: Api, grant: Grant) -> None:
        self.api = api
        self.grant = grant
        self.keys = AttemptKeys(grant.fence.job_id, grant.attempt, grant.fence.token)
        self.number = 0
        self.start = 0

    def stored(self, data: bytes) -> LogChunkRecord:
        """Store a chunk and return its row, which is not written yet."""
        key = self.keys.log_chunk(self.number)
        self.api.services.store.put(key, zstd.compress(data))
        digest = hashlib.sha256(data).hexdigest()
        chunk = LogChunkRecord(self.number, key, self.start, len(data), digest)
        self.number, self.start = self.number + 1, self.start + len(data)
        return chunk

    def index(self, chunk: LogChunkRecord) -> None:
        """Write a chunk's row."""
        assert self.api.rig.records.add_log_chunk(self.grant.fence, chunk)

    def write(self, data: bytes) -> bytes:
        """Store and index a chunk."""
        self.index(self.stored(data))
        return data


class Follower:
    """Reads a log as the page does."""

    def __init__(self, guest: Guest, job: int) -> None:
        self.guest = guest
        self.path = f"/jobs/{job}/log"
        self.got = self.ask("")
        self.first, self.last = self.got["first"], self.got["last"]
        self.read = self.data(self.got)

    def ask(self, query: str) -> dict[str, Any]:
        answer = self.guest.http.get(self.path + query)
        assert answer.status_code == 200, answer.text
        got: dict[str, Any] = answer.json()
        return got

    def data(self, got: dict[str, Any]) -> bytes:
        return b"".join(base64.b64decode(piece["data"]) for piece in got["pieces"])

    def poll(self) -> bytes:
        """Read the new output, and return it."""
        new, more = b"", True
        while more:
            self.got = self.ask(f"?after={self.last}")
            new, self.last, more = new + self.data(self.got), self.got["last"], self.got["more"]
        self.read += new
        return new

    def back(self) -> None:
        """Read all earlier output."""
        earlier = True
        while earlier:
            got = self.ask(f"?before={self.first}")
            self.read, self.first = self.data(got) + self.read, got["first"]
            earlier = got["earlier"]


def test_each_byte_of_a_log_is_read_once_while_it_grows(
    api: Api, ann: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pieces, "TAIL_BYTES", 40)
    monkeypatch.setattr(log_pieces, "MOST_BYTES", 64)
    job = api.rig.submit(owner="ann", max_preemptions=5)
    assert Follower(ann, job).poll() == b""
    first = Output(api, api.rig.worker().claim_one())
    wrote = b"".join(first.write(f"line {n} हिन्दी\n".encode() * 3) for n in range(6))
    wrote += first.write(b"no end of line " * 20)
    follower = Follower(ann, job)
    assert wrote.endswith(follower.read)
    assert 0 < len(follower.read) <= 40
    assert follower.poll() == b""
    wrote += first.write("प".encode() * 50)
    late, next_one = first.stored(b"late "), first.stored(b"next ")
    first.index(next_one)
    assert follower.poll() == "प".encode() * 50
    first.index(late)
    assert follower.poll() == b"late next "
    wrote += b"late next "
    api.rig.finish(first.grant, Reason.PREEMPTED)
    second = Output(api, api.rig.worker().claim_one())
    wrote += second.write(b"again\n") + second.write(b"x" * 300)
    follower.poll()
    assert {piece["attempt"] for piece in follower.got["pieces"]} == {2}
    api.rig.finish(second.grant)
    assert follower.poll() == b""
    assert follower.got["over"]
    follower.back()
    assert follower.read == wrote
    only = follower.ask("?attempt=1&after=0.0.-1.0")
    assert wrote.startswith(follower.data(only))
    assert ann.http.get(f"/jobs/{job}/log.txt").content == wrote
    second_alone = ann.http.get(f"/jobs/{job}/log.txt?attempt=2").content
    assert second_alone == b"again\n" + b"x" * 300
    assert ann.http.get(f"/jobs/{job}/log?after=1.2.3").status_code == 422
    assert ann.http.get(f"/jobs/{job}/log?before=9{'9' * 18}.0.0.0").status_code == 422


def test_a_chunk_that_is_gone_is_told_and_passed(api: Api, ann: Guest) -> None:
    job = api.rig.submit(owner="ann")
    output = Output(api, api.rig.worker().claim_one())
    output.write(b"before ")
    gone = output.stored(b"gone ")
    output.index(gone)
    output.write(b"after")
    api.services.store.put(gone.key, b"altered")
    got = Follower(ann, job).got
    assert [piece["missing"] for piece in got["pieces"]] == [0, 5, 0]
    forward = Follower(ann, job).ask("?after=0.0.-1.0")
    assert [piece["missing"] for piece in forward["pieces"]] == [0, 5, 0]


def test_a_job_is_told_from_its_wait_to_its_files(api: Api, ann: Guest) -> None:
    rig = api.rig
    job = rig.submit(owner="ann", name=EVIL, env={"A": EVIL}, labels={"zone": EVIL}, gpus=1)
    waiting = ann.page(f"/jobs/{job}")
    assert "Why it waits" in waiting
    assert "None so far. Files" in waiting
    asked = waiting.partition('id="asked"')[2]
    assert "1 GPU, " in asked
    assert "every 30 s" in asked
    assert not re.search("vram_mb|gpu_model", asked)
    assert "alert(1)</script>" not in waiting
    cpu = rig.submit(owner="ann", max_failures=1, bundle_digest="0" * 64)
    rig.clock.advance(60)
    grant = rig.worker("w1").claim_one()
    rig.clock.advance(5)
    rig.queue.report(grant.fence, Phase.RUNNING, progress=0.25)
    measured: dict[str, Any] = {
        "loss": 0.5,
        "wandb": PAGE.replace("//", "//ann:hunter2@"),
        "bad": "javascript:alert(1)",
        EVIL: PAGE,
    }
    lines = [MetricRecord(0, 1.0, measured), MetricRecord(1, 2.0, {"loss": "NaN"})]
    rig.records.add_metrics(grant.fence, lines)
    keys = AttemptKeys(cpu, 1, grant.fence.token)
    rig.clock.advance(10)
    rig.records.add_checkpoint(
        grant.fence, CheckpointRecord(0, keys.checkpoint_manifest(0), 2, 2048)
    )
    running = ann.page(f"/jobs/{cpu}?part=status")
    assert "waiting 1 min, preparing 5 s, running 10 s" in running
    assert "25" in running
    assert "Preempt" in running
    assert f'<dt>wandb</dt><dd><a href="{PAGE}" rel="noopener noreferrer">wandb.ai</a>' in running
    assert "hunter2" not in running
    assert not {"javascript:alert(1)", EVIL} & set(re.findall('(?:href="|<dt>)([^"<]*)', running))
    assert "alert(1)</script>" not in running
    stats = dict(re.findall(r"<dt>([^<]*)</dt>\s*<dd>([^<]*)", running))
    assert [stats[name].strip() for name in ("Left", "loss", "Ran for")] == [
        "about 30 s",
        "NaN",
        "10 s",
    ]
    assert not {"Cost so far", "GPU time"} & set(stats)
    items = ann.http.get(f"/jobs/{cpu}/series").json()["items"]
    assert [(item["key"], item["last"]) for item in items] == [("loss", [0.5, None])]
    rig.clock.advance(20)
    rig.finish(grant, Reason.PREEMPTED, detail=EVIL)
    again = rig.worker("w1").claim_one()
    data = b"weights"
    file = ArtifactRecord(
        f"a b/{EVIL[1:7]}.bin", keys.artifact("x"), len(data), hashlib.sha256(data).hexdigest()
    )
    api.services.store.put(file.key, data)
    rig.records.add_artifacts(again.fence, [file])
    rig.finish(again)
    told = ann.page(f"/jobs/{cpu}")
    assert "running 10 s, lost 20 s" in told
    assert "checkpoint 1.0" in told
    assert "alert(1)</script>" not in told
    found = ann.http.get(f"/jobs/{cpu}/artifact", params={"path": file.path})
    assert found.status_code == 303
    assert api.http.get(found.headers["location"]).content == data
    assert ann.http.get(f"/jobs/{cpu}/artifact?path=other").status_code == 404


def test_the_result_and_the_tests_of_a_job_are_shown_with_all_their_values(
    api: Api, ann: Guest
) -> None:
    job = api.rig.submit(owner="ann")
    grant = api.rig.worker().claim_one()
    found = {
        "accuracy": 0.5,
        "top": [1, 2.5, "c"],
        "by class": {EVIL: True},
        "none": {},
        "grid": [[1, 2], [3]],
        "calls": [{"raised": {"type": "E", "traceback": "a\nb"}}],
    }
    api.rig.records.add_result(grant.fence, found)
    tests = [attempt_records.Tested(0, "suite", "test_good", Verdict.PASSED, 0.5)]
    tests.append(attempt_records.Tested(1, "suite", "test_bad", Verdict.FAILED, message=EVIL))
    api.rig.records.add_tests(grant.fence, tests)
    assert 'id="result"' not in ann.page(f"/jobs/{job}")
    api.rig.finish(grant)
    shown = re.sub(r"(?<=>)\s+|\s+(?=[<,])", "", ann.page(f"/jobs/{job}"))
    assert "accuracy</dt><dd>0.5</dd>" in shown
    assert "top</dt><dd>1, 2.5, c</dd>" in shown
    assert "grid</dt><dd>[1, 2], [3]</dd>" in shown
    assert "none</dt><dd>{}</dd>" in shown
    assert 'raised</dt><dd><pre class="detail" tabindex="0">a\nb</pre>' in shown
    assert f"{html.escape(EVIL)}</dt><dd>true</dd>" in shown
    assert (
        0
        < shown.index("test_bad")
        < shown.index(f"{html.escape(EVIL)}</pre>")
        < shown.index("test_good")
    )


def test_what_a_function_raised_is_shown_once(api: Api, ann: Guest) -> None:
    lines = ["Traceback (most recent call last):", "  a call", "ValueError: too big"]
    raised = {"type": "ValueError", "message": "too big", "traceback": "\n".join(lines) + "\n"}
    job = api.rig.submit(owner="ann", max_failures=0)
    grant = api.rig.worker().claim_one()
    api.rig.records.add_result(grant.fence, {"raised": raised})
    detail = "\n".join([lines[-1], *lines])
    api.rig.finish(grant, Reason.EXIT_CODE, exit_code=1, detail=detail)
    shown = ann.page(f"/jobs/{job}")
    assert ("\n".join(lines[:-1]) + "</pre>" in shown, shown.count("  a call")) == (True, 1)
    assert 'id="result"' not in shown

    tasks: list[Any] = [
        {"state": "succeeded", "parameters": {"lr": 0.5}, "result": {"acc": 1}, "seconds": 3},
        {"state": "failed", "parameters": {"lr": 7}, "result": {"raised": raised}, "seconds": 1},
        {"seconds": 1e300},
        None,
    ]
    packed = api.rig.submit(owner="ann", name="pack", max_failures=1, backoff_s=0)
    for did, twice in (("failed", ""), ("failed as before", "failed the same way twice: ")):
        grant = api.rig.worker().claim_one()
        api.rig.records.add_result(grant.fence, {"forge_tasks": tasks})
        detail = "\n".join([twice + lines[-1], *lines, f"1 of 4 tasks {did}: 1"])
        api.rig.finish(grant, Reason.EXIT_CODE, exit_code=1, detail=detail)
        api.rig.tick.run()
    shown = re.sub(r"(\s*</?\w[^>]*>\s*)+", "|", ann.page(f"/jobs/{packed}"))
    assert f"|{packed}.0|✓|succeeded|lr=0.5|3 s|acc=1|{packed}.1|✕|failed|lr=7|1 s|" in shown
    assert f"|1 s|ValueError: too big|{packed}.2|" in shown
    assert (shown.count("  a call"), "forge_tasks" in shown) == (1, False)
    runs = ann.page("/runs?q=name:pack")
    assert re.findall(r'<tr id="row-([\d.]+)"', runs) == [f"{packed}.{n}" for n in range(4)]


def test_a_job_on_several_machines_shows_its_ranks_in_order(api: Api, ann: Guest) -> None:
    run = running(api.rig, same="zone", labels={"zone": "eu"}, max_failures=1, backoff_s=0)
    path = f"/jobs/{run.job_id}"
    run.start()
    ended(run, (1, Reason.OOM, 137, "out of memory"))
    for rank in (0, 2):
        stop(run, rank)
    run = formed(api.rig, run.job_id, run.workers)
    for fence in run.fences:
        api.rig.queue.report(fence, Phase.PREPARING)
    api.rig.queue.gather(run.fences[1], 1, {})
    page = ann.page(path)
    ranks = re.findall(r'<th scope="row">(\d) <span class="note">rank (\d)', page)
    assert ranks == [("2", "0"), ("2", "1"), ("2", "2"), ("1", "0"), ("1", "1"), ("1", "2")]
    assert page.count("waiting for the others") == 1
    chosen = page.partition('id="log-rank">')[2].partition("</select>")[0]
    assert re.findall(r'value="(\d)"', chosen) == ["0", "1", "2"]
    assert '<span class="tag">launcher torchrun</span> <span class="tag">same zone</span>' in page
    listed = ann.page("/jobs?part=rows&q=worker:gpu-2")
    assert 'title="gpu-0, gpu-1, gpu-2">and 2 more</span>' in listed
    assert "--nodes 3 --launcher torchrun --same zone" in html.unescape(
        ann.page(f"/submit?from={run.job_id}")
    )


def test_all_machines_of_a_range_are_counted_and_have_their_ranks(api: Api, ann: Guest) -> None:
    job = gang(api.rig, 2, max_nodes=4)
    run = formed(api.rig, job, [api.rig.worker(f"gpu-{n}") for n in range(3)])
    page = ann.page(f"/jobs/{job}")
    chosen = page.partition('id="log-rank">')[2].partition("</select>")[0]
    assert re.findall(r'value="(\d)"', chosen) == ["0", "1", "2", "3"]
    assert "and 2 more</span>" in ann.page("/jobs?part=rows")
    for rank in range(3):
        run.end(rank)
    assert "and 2 more</span>" in ann.page("/jobs?part=rows")


def test_the_page_of_a_job_that_waits_for_machines_says_how_many(api: Api, ann: Guest) -> None:
    job = gang(api.rig, 4)
    assert "4 machines" in ann.page("/jobs?part=rows")
    assert 'id="log-rank"' in ann.page(f"/jobs/{job}")


def test_a_sum_is_of_all_attempts_and_a_checkpoint_that_is_gone_is_not_named(
    api: Api, ann: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RUNS_SHOWN", 2)
    rig = api.rig
    job = rig.submit(owner="ann", max_preemptions=5, sweep='lr "big" *', experiment="e 1")
    for number in range(3):
        grant = rig.worker("w1", price_per_hour=3.0).claim_one()
        keys = AttemptKeys(job, grant.attempt, grant.fence.token)
        kept = CheckpointRecord(0, keys.checkpoint_manifest(0), 1, 10)
        assert rig.records.add_checkpoint(grant.fence, kept) if number < 2 else True
        rig.queue.report(grant.fence, Phase.RUNNING)
        rig.clock.advance(1200)
        rig.finish(grant, Reason.PREEMPTED, usage=Usage(cost=1.0, gpu_seconds=1200.0))
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("DELETE FROM checkpoint WHERE attempt = 1")
    told = ann.page(f"/jobs/{job}")
    assert ">3.00<" in told
    assert re.search(r"<dd>20 min <span[^>]*>3 attempts, 40 min in all<", told)
    assert ">1 h<" in told
    assert "a checkpoint that has been deleted" in told
    assert "checkpoint 2.0" in told
    (link,) = re.findall(r'href="(/jobs\?q=sweep[^"]*)"', told)
    assert f'href="/jobs/{job}"' in ann.page(html.unescape(link))
    (link,) = re.findall(r'href="(/runs\?q=experiment[^"]*)"', told)
    assert f'href="/jobs/{job}"' in ann.page(html.unescape(link))


def test_the_pause_before_a_retry_is_drawn_as_waiting(api: Api, ann: Guest) -> None:
    rig = api.rig
    job = rig.submit(owner="ann", max_failures=1, backoff_s=60)
    grant = rig.worker("w1").claim_one()
    rig.queue.report(grant.fence, Phase.RUNNING)
    rig.clock.advance(5)
    rig.finish(grant, Reason.EXIT_CODE, exit_code=1)
    rig.clock.advance(200)
    rig.tick.promote()
    rig.clock.advance(100)
    rig.worker("w1").claim_one()
    told = ann.page(f"/jobs/{job}?part=status")
    assert "waiting 5 min" in told
    assert ">5 min<" in told


def test_acts_on_one_job_lead_back_to_it(api: Api, ann: Guest) -> None:
    rig = api.rig
    job = rig.submit(owner="ann", max_failures=0)
    grant = rig.worker().claim_one()
    for _ in range(2):
        assert ann.act(f"/jobs/{job}/preempt").headers["location"] == f"/jobs/{job}"
    assert rig.actions(job).count("asked to preempt") == 1
    rig.queue.report(grant.fence, Phase.RUNNING, replaced_by=uuid4())
    assert "was replaced; the job ran on</th>" in ann.page(f"/jobs/{job}")
    rig.finish(grant, Reason.EXIT_CODE, exit_code=139, detail="ValueError: 3\nIn <module>")
    failed = ann.page(f"/jobs/{job}")
    assert failed.count("exit code 139") == 3
    assert "no retries were allowed (1 failed attempt)" in failed
    assert f"look at its last output: <code>forge logs {job} --tail 20</code>" in failed
    assert "exit_code" not in failed
    # What is wrong is a heading, and said once; why it failed is not asked for with each refresh.
    error = failed.partition('class="failure"')[2].partition("</section>")[0]
    assert "<h2>ValueError: 3</h2>" in error
    assert "In &lt;module&gt;</pre>" in error
    status = ann.page(f"/jobs/{job}?part=status")
    assert f'id="end-1" hx-preserve hx-get="/jobs/{job}?part=end"' in status
    assert "no retries were allowed" not in status
    assert "no retries were allowed" in ann.page(f"/jobs/{job}?part=end")
    listed = ann.page("/jobs?part=rows")
    assert ">exit code 139<" in listed
    assert ">ValueError: 3<" in listed
    hindi = ann.http.get(f"/jobs/{job}", headers={"Accept-Language": "hi"}).text
    assert "कोई प्रयास शेष नहीं: उपयोग 1, अनुमति 0" in hindi
    assert "None. Files that a job writes to $FORGE_OUTPUT_DIR" in failed
    assert ann.act(f"/jobs/{job}/retry").status_code == 303
    assert rig.state(job) is State.READY
    assert ann.act(f"/jobs/{job}/retry").status_code == 409
    for _ in range(2):
        assert ann.act(f"/jobs/{job}/cancel").status_code == 303
    assert rig.state(job) is State.CANCELLED


def test_tags_and_the_note_are_changed_on_the_page_and_shown_in_the_list(
    api: Api, ann: Guest
) -> None:
    job = api.rig.submit(owner="ann", name="digits")
    place = f"/jobs/{job}"
    assert ann.act(f"{place}/annotate", add="paper, v1").headers["location"] == place
    ann.act(f"{place}/annotate", note=f"first\r\n{EVIL}", noted="true")
    ann.act(f"{place}/annotate", remove="v1")
    page = ann.page(place)
    assert f"first\n{html.escape(EVIL)}" in page
    assert 'href="/jobs?q=tag%3Apaper"' in page
    assert "No longer tagged v1" in page
    assert ann.act(f"{place}/annotate", add="a:b").status_code == 422
    refused = ann.act(f"{place}/annotate", archived="true")
    assert (refused.status_code, "has not ended" in refused.text) == (409, True)
    assert "digits" in ann.page("/jobs?q=tag%3Apaper")
    assert "digits" not in ann.page("/jobs?q=tag%3Av1")
    ann.act(f"{place}/annotate", note="", noted="true")
    ann.act(f"{place}/cancel")
    ann.act(f"{place}/annotate", archived="true")
    assert "digits" not in ann.page("/jobs")
    assert "digits" in ann.page("/jobs?q=archived%3Ayes")
    assert html.escape(EVIL) not in ann.page("/jobs?q=archived%3Ayes")
    assert ann.act(f"{place}/delete").headers["location"] == "/jobs"
    assert ann.http.get(place).status_code == 404
