"""The pages of workers: who is shown what, and what an admin may have them do."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.model.states import Phase, Reason, Role
from forge_schema.model.worker import Speed
from support.gangs.gang_workers import gang_worker
from support.gangs.runs import running
from support.http.pages import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api

GPUS = [{"uuid": "GPU-1", "name": "NVIDIA H100", "vram_mb": 81_559}]
TOKEN = re.compile(r"fgw_[0-9]+_[0-9a-f]{64}_[0-9a-f]{8}")


@pytest.fixture
def admin(api: Api) -> Iterator[Reader]:
    with closing(Reader(api)) as reader:
        yield reader


def test_the_list_is_filtered_and_paged_by_name(api: Api, admin: Reader) -> None:
    for n in range(60):
        gpus = GPUS if n % 2 else []
        labels = {"zone": "eu" if n < 55 else "us", "forge.secret.BENS_KEY": ",*,"}
        api.rig.worker(f"w{n:02}", gpus=gpus, labels=labels)
    first = admin.page("/workers")
    names = re.findall(r'<a href="/workers/\d+">(w\d\d)</a>', first)
    assert names == [f"w{n:02}" for n in range(50)]
    after = re.search(r'href="(/workers\?after=w49)"', first)
    assert after is not None
    assert re.findall(r">(w\d\d)</a>", admin.page(after[1])) == [f"w{n}" for n in range(50, 60)]
    fit = admin.page("/workers?q=h100+zone%3Dus")
    assert re.findall(r">(w\d\d)</a>", fit) == ["w55", "w57", "w59"]
    # Nor is there a way to learn which secrets others have, as anybody may search.
    for nothing in ("%25", "BENS_KEY", "secret"):
        assert "No worker matches" in admin.page(f"/workers?q={nothing}")
    assert "No worker matches" in admin.page("/workers?status=draining")
    rows = admin.page("/workers?part=rows&q=w01")
    assert "1 \u00d7 NVIDIA H100" in rows
    assert "<html" not in rows


def test_a_worker_shows_its_devices_jobs_attempts_and_events(api: Api, admin: Reader) -> None:
    measured = Speed("torch", cpus=8, cpu={"fp32": 400.0}, cuda={"fp32": 51e3, "bf16": 495e3})
    worker = api.rig.worker("gpu-1", gpus=GPUS, price_per_hour=2.5, speed=measured)
    job_id = api.rig.submit(name="train", gpus=1, owner="bob", queue="bobs")
    grant = worker.claim_one()
    api.rig.finish(grant, Reason.EXIT_CODE, exit_code=3)
    api.rig.clock.advance(60)
    api.rig.tick.run()
    assert worker.claim_one().fence.job_id == job_id
    api.rig.clock.advance(1)
    page = admin.page(f"/workers/{worker.id}?over=6h")
    for text in (
        "GPUs in use and idle",
        '<th scope="col" class="num">Jobs running</th>',
        "NVIDIA H100",
        "GPU-1",
        "79.6 GiB",
        f'href="/jobs/{job_id}"',
        "exit code 3",
        "Worker connected",
        "bobs",
        "cpu 400 GFLOPS, cuda 495 TFLOPS",
    ):
        assert text in page, text
    # A viewer learns only that other owners' jobs are there.
    with closing(Reader(api, Role.VIEWER, "ann")) as viewer:
        page = viewer.page(f"/workers/{worker.id}")
        assert "another owner" in page
        assert "bobs" not in page
        assert "/jobs/" not in page.replace('href="/jobs"', "")
        assert "Worker connected" not in page
        assert "/drain" not in page
        refused = viewer.post(f"/workers/{worker.id}/drain", shown="/queues")
        assert refused.status_code == 403
        viewer.page("/workers/new", 403)
    admin.page("/workers/999999", 404)


def test_a_suspected_worker_and_one_that_left_say_why(api: Api, admin: Reader) -> None:
    worker = api.rig.worker("bad")
    api.rig.rows(
        "UPDATE worker SET suspected_for = 'jobs of 2 owners failed on it',"
        " rests_until = forge_now() + '4 minutes'"
    )
    for path in ("/workers", f"/workers/{worker.id}"):
        page = admin.page(path)
        assert "suspected: jobs of 2 owners failed on it" in page
        assert "tries the next job in 4 min" in page
    api.rig.registry.disconnect(worker.id, worker.machine.boot_id, "it was idle for 15 min")
    assert "it was idle for 15 min" in admin.page("/workers")


def test_the_gpus_of_a_job_that_is_only_stored_are_not_in_use(api: Api, admin: Reader) -> None:
    worker = api.rig.worker("gpu-1", gpus=GPUS)
    job_id = api.rig.submit(gpus=1)
    grant = worker.claim_one()
    at_work = {}
    for phase in (Phase.RUNNING, Phase.FINISHING):
        api.rig.queue.report(grant.fence, phase, devices=["GPU-1"])
        on_gpu = f'data-label="Job"><a href="/jobs/{job_id}"' in admin.page(f"/workers/{worker.id}")
        at_work[phase] = on_gpu, "1 of 1 in use" in admin.page("/workers")
    assert at_work == {Phase.RUNNING: (True, True), Phase.FINISHING: (False, False)}


def test_a_worker_shows_its_rank_and_where_the_others_reach_it(api: Api, admin: Reader) -> None:
    worker = gang_worker(api.rig, "reached", address="10.0.0.7")
    run = running(api.rig, nodes=2)
    page = admin.page(f"/workers/{worker.id}")
    assert "<dt>Jobs on several machines</dt><dd>10.0.0.7</dd>" in page
    with closing(Reader(api, Role.VIEWER, "ann")) as viewer:
        assert "<dd>takes part</dd>" in viewer.page(f"/workers/{worker.id}")
    page = admin.page(f"/workers/{run.workers[1].id}")
    assert "rank 1 of 2" in page
    assert "<dd>takes no part</dd>" in page
    for rank in range(2):
        run.end(rank)
    assert f"{run.job_id} · rank 1</span>" in admin.page(f"/workers/{run.workers[1].id}")


def test_an_admin_drains_a_worker_and_takes_it_back(api: Api, admin: Reader) -> None:
    worker = api.rig.worker("w")
    here = f"/workers/{worker.id}"
    assert admin.post(f"{here}/drain", shown=here).headers["location"] == here
    assert "Let it take jobs again" in admin.page(here)
    assert api.rig.registry.worker(worker.id)["command"] == "drain"
    admin.post(f"{here}/drain", shown=here, undo="true")
    assert api.rig.registry.worker(worker.id)["command"] is None


def test_a_new_worker_is_shown_its_token_once(api: Api, admin: Reader) -> None:
    fields = {"name": "gpu-7", "kind": "ephemeral", "labels": "zone=eu, team=a", "expiry": "7 days"}
    made = admin.post("/workers/new", shown="/workers/new", **fields)
    assert made.status_code == 200
    assert made.headers["cache-control"] == "no-store"
    (token,) = set(TOKEN.findall(made.text))
    assert f"forge-worker --url {api.url} --token-file" in made.text
    worker_id = int(token.split("_")[1])
    here = f"/workers/{worker_id}"
    row = api.rig.row("SELECT * FROM worker WHERE id = %s", worker_id)
    assert (row["kind"], row["pinned_labels"]) == ("ephemeral", {"zone": "eu", "team": "a"})
    assert row["token_expires_at"] is not None
    assert TOKEN.search(admin.page(here)) is None
    # Sending the form again makes no second worker.
    again = admin.post("/workers/new", shown="/workers/new", **fields)
    assert again.status_code == 409
    assert "Choose another name" in again.text
    line = admin.post(
        "/workers/new", shown="/workers/new", **{**fields, "name": "gpu-8", "gives": "line"}
    )
    assert line.headers["cache-control"] == "no-store"
    assert f"{api.url}&#34;" in line.text
    assert "It works once, and expires on" in line.text
    page = admin.page("/workers?status=connecting")
    # In each row, and in the count above them.
    assert (page.count("not connected yet"), page.count("its line or token expires:")) == (3, 2)
    assert "not connected yet" in admin.page(here)
    wrong = admin.post("/workers/new", shown="/workers/new", name="x", labels="zone")
    assert wrong.status_code == 422
    assert "zone=eu" in wrong.text

    rotated = admin.post(f"{here}/token", shown=here)
    (newer,) = set(TOKEN.findall(rotated.text))
    assert newer != token
    headers = {"X-Worker-Token": token}
    assert api.http.post("/api/v1/workers/claim", headers=headers, json={}).status_code == 401
    assert (
        api.http.post(
            "/api/v1/workers/claim", headers={"X-Worker-Token": newer}, json={}
        ).status_code
        != 401
    )


def test_only_a_worker_that_is_away_can_be_deleted(api: Api, admin: Reader) -> None:
    worker = api.rig.worker("w")
    worker.renew()
    here = f"/workers/{worker.id}"
    assert "It can be deleted once it is offline" in admin.page(here)
    refused = admin.post(f"{here}/delete", shown=here)
    assert refused.status_code == 409
    assert "Drain it, stop it" in refused.text
    api.rig.registry.disconnect(worker.id, worker.machine.boot_id)
    assert "It can be deleted once" not in admin.page(here)
    assert admin.post(f"{here}/delete", shown=here).headers["location"] == "/workers"
    assert "/drain" not in admin.page(here)


def test_the_page_of_a_removed_worker_shows_what_it_did(api: Api, admin: Reader) -> None:
    worker = api.rig.worker("spot-1")
    job_id = api.rig.submit(name="train", owner="bob")
    api.rig.finish(worker.claim_one(), Reason.EXIT_CODE, exit_code=3)
    here = f"/workers/{worker.id}"
    assert f'href="{here}"' in admin.page(f"/jobs/{job_id}")
    WorkerTokens(api.rig.database, actor="user:root").delete(worker.id)
    for page in (f"/jobs/{job_id}", "/jobs"):
        assert f'href="{here}">spot-1<' in admin.page(page)
    page = admin.page(here)
    for text in (
        "This worker was removed",
        f'href="/jobs/{job_id}"',
        "exit code 3",
        "Worker connected",
    ):
        assert text in page, text
    assert "<html" not in admin.page(f"{here}?part=past")
    with closing(Reader(api, Role.VIEWER, "ann")) as viewer:
        page = viewer.page(here)
        assert "train" not in page
        assert "Worker connected" not in page
