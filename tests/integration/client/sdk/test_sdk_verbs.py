"""The SDK's verbs, directly and through a server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import forge_client
import pytest
from forge_client import AsyncClient, AsyncJob, Client, ClientError, Job, JobFailed, NotFound, job
from forge_schema.model.states import Reason
from support.client.reaching import WAYS, reaching
from support.queue.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.queue.rig import Rig


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest, rig: Rig, store_url: str) -> Iterator[Client]:
    with reaching(request.param, rig, store_url) as client:
        yield client


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n", encoding="utf-8")
    return folder


def finish(rig: Rig, value: dict[str, object] | None = None, reason: Reason | None = None) -> None:
    """Run the next job on some worker."""
    worker = rig.worker()
    grant = worker.claim_one()
    if value is not None:
        assert rig.records.add_result(grant.fence, value)
    rig.finish(grant, reason or Reason.SUCCEEDED)


def test_a_result_is_what_the_job_found(client: Client, rig: Rig, project: Path) -> None:
    job = client.submit(project, "ls", name="digits")
    assert (job.name, job.state) == ("digits", "queued")
    finish(rig, {"accuracy": 0.93})
    for timeout in (60, "1m", timedelta(minutes=1)):
        assert job.result(timeout=timeout) == {"accuracy": 0.93}
        assert job.watch(timeout=timeout).terminal
        assert forge_client.wait([job], timeout=timeout).done == {job}
    assert (job.wait().state, job.state) == ("succeeded", "succeeded")


def test_a_failed_job_is_retried_and_a_running_one_preempted(
    client: Client, rig: Rig, store_url: str, project: Path
) -> None:
    job = client.submit(project, "ls", max_failures=0)
    finish(rig, reason=Reason.EXIT_CODE)
    assert job.wait(timeout="1m").terminal
    with pytest.raises(JobFailed):
        job.result()
    assert job.retry()
    assert job.state == "queued"
    assert not job.retry()
    assert not job.preempt()
    Holder(rig, store_url, "w2")
    assert job.preempt()
    assert [attempt.reason for attempt in job.attempts()] == ["exit_code"]
    assert "retried" in {event.action for event in job.events()}


def test_a_command_in_one_string_is_split_before_values_are_put_in(
    client: Client, rig: Rig, project: Path
) -> None:
    values = [{"lr": "a b", "path": project}]
    own = {"path": "mine"}
    jobs = client.map("prog --lr {lr} '{{lr}}'", values, folder=project, parameters=own)
    assert jobs[0].backend.request(jobs[0].id)["parameters"] == {"path": "mine", "lr": "a b"}
    jobs += client.submit_many([{"command": "a 'b c'"}], folder=project)
    jobs += [jobs[0].rerun("d 'e f'"), client.test(project, "-k 'one or two'", program="pytest -x")]
    assert [job.backend.request(job.id)["command"] for job in jobs] == [
        ["prog", "--lr", "a b", "{a b}"],
        ["a", "b c"],
        ["d", "e f"],
        ["pytest", "-x", "-k", "one or two"],
    ]
    assert rig.count("job") == 4


def test_a_dry_run_of_whatever_submits_stores_nothing(
    client: Client, rig: Rig, store_url: str, project: Path
) -> None:
    first = client.submit(project, "ls", name="digits")
    client.schedule("nightly", "0 3 * * *", project, "ls -a")
    objects = Path(store_url.removeprefix("file://"))
    stored = sorted(objects.rglob("*"))
    (project / "late.py").write_text("", encoding="utf-8")
    (project / ".env").write_text("KEY=1", encoding="utf-8")
    dry, values = forge_client.dry_run, [{"n": 1}, {"n": 2}]
    with pytest.warns(UserWarning, match="left out: .env"):
        plan = dry(client.submit, project, "python train.py", gpus=1, secrets=[])
    assert [(file.path, file.bytes) for file in plan.files] == [("late.py", 0), ("train.py", 15)]
    assert (plan.jobs[0]["resources"]["gpus"], plan.left_out[0].why) == (1, "credentials")
    (project / ".env").unlink()
    plans = [
        dry(client.submit_many, [{"command": "ls"}] * 2, folder=project),
        dry(client.map, "a {n}", values, folder=project),
        dry(client.benchmark, project, "a {n}", matrix={"n": [1, 2]}, per_job=2),
        dry(client.test, project, "-x"),
        dry(client.run_handler, "resize", {"size": 3}),
        dry(first.rerun, "ls -l"),
        dry(client.schedule, "hourly", "0 * * * *", project, "ls"),
        dry(client.run_schedule, "nightly"),
        dry(job(client=client)(len).submit, [2, 3]),
        dry(job(client=client)(abs).map, []),
    ]
    assert [len(plan.jobs) for plan in plans] == [2, 2, 1, 1, 1, 1, 1, 1, 1, 0]
    assert plans[5].jobs[0]["command"] == ["ls", "-l"]
    assert (rig.count("job"), sorted(objects.rglob("*"))) == (1, stored)
    assert [kept.name for kept in client.schedules()] == ["nightly"]


LETTERS: list[tuple[str, Callable[[Client, Path], object]]] = [
    ("which is|has values only", lambda c, p: c.map("a {x}", [{"lr": 1}], folder=p)),
    ("No closing quotation", lambda c, p: c.map("a 'b", [{}], folder=p)),
    ("submit, ", lambda c, p: c.submit(p, "a", dry_run=True)),  # type: ignore[call-arg]
    ("nothing that submits", lambda c, _: forge_client.dry_run(c.jobs)),  # type: ignore[call-overload]
    ("no command", lambda c, p: c.map(" ", [{}], folder=p)),
    ("not the values of one job", lambda c, p: c.map("a {lr}", "ab", folder=p)),  # type: ignore[arg-type]
    ("not the values of one job", lambda c, p: c.map("a {lr}", {"lr": 1}, folder=p)),  # type: ignore[dict-item]
    ("not the fields of a job", lambda c, p: c.submit_many(["a b"], folder=p)),  # type: ignore[list-item]
    ("instead of a list", lambda c, p: c.benchmark(p, "a {x}", matrix={"x": "01"})),
    ("is not a matrix", lambda c, p: c.benchmark(p, "a", matrix=["x=1"])),  # type: ignore[arg-type]
    ("labels: write a dictionary", lambda c, p: c.submit(p, "a", labels="a=b")),  # type: ignore[arg-type]
    ("grace: must be at most 1 h", lambda c, p: c.submit(p, "a", grace="2d")),
    ("secrets: write a list", lambda c, p: c.submit(p, "a", secrets="KEY")),
    (r"timeout: \{\} is not a duration", lambda c, p: c.submit(p, "a", timeout={})),  # type: ignore[arg-type]
    (r"memory: \[\] is not a size", lambda c, p: c.submit(p, "a", memory=[])),  # type: ignore[arg-type]
    ("cpus: write a number", lambda c, p: c.submit(p, "a", cpus=True)),
    ("max_failures: write a number", lambda c, p: c.submit(p, "a", max_failures=False)),
    ("nothing to install|or False to", lambda c, p: c.submit(p, "a", requirements="")),
    ("other: 1 is of the wrong kind", lambda c, _: Job(c.backend, 1).diff(1)),  # type: ignore[arg-type]
    ("tags: 5 is of the wrong kind", lambda c, _: Job(c.backend, 1).tag("a", 5)),  # type: ignore[arg-type]
    ("jobs: 1 is not a job", lambda _c, _p: forge_client.wait([1])),  # type: ignore[list-item]
    ("jobs: 1 is not a job", lambda _c, _p: [*forge_client.as_completed(1)]),  # type: ignore[arg-type]
    ("api_key: 5 is of the wrong kind", lambda _c, _p: Client(api_key=5)),  # type: ignore[arg-type]
    ("True is of the wrong kind", lambda c, _: c.job(handle=True)),
    ("repeat: -1 is less than 1", lambda c, p: c.benchmark(p, "a", repeat=-1)),
    ("nothing to vary", lambda c, p: c.benchmark(p, "a", matrix={})),
    ("count: 0 is less than 1", lambda c, _: c.jobs(count=0)),
    ("labels are a dictionary", lambda c, p: c.create_worker(p.name, labels="a=b")),  # type: ignore[arg-type]
]


def test_no_text_is_taken_for_a_list_of_letters(rig: Rig, store_url: str, project: Path) -> None:
    with reaching("direct", rig, store_url) as client:
        for said, call in LETTERS:
            with pytest.raises(ClientError, match=said):
                call(client, project)
        (first,) = client.submit_many({"command": "first"}, folder=project)  # type: ignore[dict-item]
        (project / "kept.pt").touch()
        (project / ".forgeignore").write_text("*.pt\n", encoding="utf-8")
        with pytest.warns(UserWarning, match=r"include=\['kept.pt'\]") as warned:
            client.map("ls", [{}], folder=project)
        assert warned[0].filename == __file__
        after = client.submit(project, "ls", include="*.pt", after=str(first.id))
        (project / ".forgeignore").unlink()
        client.submit(project, "ls", after_ok=(job for job in (first, after)))
        assert (after.code(project.parent / "code") / "kept.pt").exists()
        (row, _) = client.jobs(states="held")
        assert (row.job.name, forge_client.wait([row], timeout=0).not_done) == (row.name, {row.job})
        with pytest.raises(AttributeError, match=r"write row\.job\.cancel"):
            row.cancel()  # type: ignore[attr-defined]
        assert client.report("cost", by="owner") == []
        assert forge_client.wait(first, timeout="0s").not_done == {first}
        with pytest.raises(TimeoutError, match="is queued after"):
            first.result(timeout=timedelta(0))


def test_a_benchmark_is_a_sweep_that_is_compared(client: Client, rig: Rig, project: Path) -> None:
    sweep = client.benchmark(
        project, "python train.py {lr}", matrix={"lr": [0.1, 0.01]}, name="bench", repeat=1
    )
    assert sweep.states() == {"queued": 2}
    for loss in (1.0, 2.0):
        finish(rig, {"loss": loss})
    assert [job.result() for job in sweep.jobs()] == [{"loss": 1.0}, {"loss": 2.0}]
    assert [(each.name, each.runs) for each in client.sweeps()] == [(sweep.name, 2)]
    assert client.sweeps(owner="nobody") == client.sweeps(team="nobody") == []
    groups = client.sweep(sweep.name).compare(metric="loss")
    assert [(group.by, group.mean, group.ratio) for group in groups] == [
        ({"lr": 0.1}, 1.0, 1.0),
        ({"lr": 0.01}, 2.0, 2.0),
    ]
    frame = sweep.points().to_frame()
    assert frame["parameters.lr"].tolist() == [0.1, 0.01]
    assert frame["result.loss"].tolist() == [1.0, 2.0]
    with pytest.raises(ClientError):
        client.sweep("nosuch")


def test_tests_and_handlers_are_jobs(client: Client, project: Path) -> None:
    tests = client.test(project, ["-x"]).status()
    assert (tests.spec["command"], tests.spec["kind"], tests.max_failures) == (
        ["python3", "-m", "pytest", "-x"], "test", 0,
    )  # fmt: skip
    handled = client.run_handler("resize", {"size": 3}, gpus=1).status()
    assert (handled.name, handled.spec["arguments"], handled.bundle_digest) == (
        "resize", {"size": 3}, None,
    )  # fmt: skip


def test_a_job_config_is_kept_used_and_removed(client: Client, project: Path) -> None:
    kept = client.keep_template("big", command="ls", name="resnet", memory="2GiB")
    assert client.templates() == [kept]
    job = client.submit(project, config="big")
    assert (job.status().name, job.status().spec["resources"]["memory_mb"]) == ("resnet", 2048)
    client.remove_template("big")
    assert client.templates() == []


def test_an_admin_does_all_from_python(client: Client, rig: Rig) -> None:
    worker = rig.worker("w")
    client.drain("w")
    assert {row.name: row.id for row in client.workers()} == {"w": worker.id}
    with pytest.warns(UserWarning, match="no job has used night yet") as warned:
        client.limit_queue("night", max_gpus=8)
    assert warned[0].filename == __file__
    client.limit_queue("night", max_jobs=2)
    client.pause("night")
    (queue,) = client.queues()
    assert (queue.name, queue.paused, queue.max_jobs, queue.max_gpus) == ("night", True, 2, 8)
    client.limit_queue("night", max_gpus=None)
    client.resume("night")
    (queue,) = client.queues()
    assert (queue.paused, queue.max_jobs, queue.max_gpus) == (False, 2, None)
    with pytest.warns(UserWarning, match="bob has not submitted a job yet"):
        client.limit_owner("bob", max_jobs=3)
    client.limit_owner("bob", weight=2)
    (owner,) = (row for row in client.owners() if row.owner == "bob")
    assert (owner.max_jobs, owner.weight) == (3, 2)
    key = client.create_key("bob", "submitter", lasts="7d")
    known = client.keys()
    (expires,) = (row.expires_at for row in known if str(row.id) == key.id)
    assert expires is not None
    client.revoke_key(key.id)
    assert client.create_worker("new").text.startswith("fgw_")
    client.delete_worker("new")
    assert {"key_created", "key_revoked"} <= {
        event.action for event in client.events(since="yesterday")
    }
    assert "queue_demand" in client.reports()
    assert client.report("queue_demand").to_frame().empty
    assert client.approvals() == []
    for wrong, said in (
        (lambda: client.limit_owner("bob", weight=-2), "weight: must be at least"),
        (lambda: client.limit_queue("night", gpus=8), "there is no 'gpus'"),  # type: ignore[call-arg]
        (lambda: client.set_queue("night", preemption="x"), "preemption: must be"),  # type: ignore[arg-type]
        (lambda: client.create_key("bob", "boss"), "role: 'boss' is not known"),
        (lambda: client.run_groups(by="nope"), "by: 'nope' is not known"),  # type: ignore[arg-type]
        (lambda: client.keep_template("empty"), "nothing to save"),
        (lambda: client.report("cost", since="1d", until="3d"), "end before it begins"),
        (lambda: client.events(since="soon"), "since: 'soon' is neither an age nor a time"),
        (lambda: client.revoke_key(9999), "no API key 9999"),
        (lambda: client.rotate_key(12), "no API key 12"),
        (lambda: client.resume("nihgt"), "no queue 'nihgt': did you mean night"),
        (lambda: client.approve([999]), "job 999 does not exist"),
        (lambda: client.create_key("bob", "viewer", lasts="7 parsec"), "not a duration"),
        (lambda: client.create_key("bob", "viewer", lasts=7), "lasts: 7 is of"),  # type: ignore[arg-type]
        (lambda: client.pause(5), "queue: 5 is of the wrong kind"),  # type: ignore[arg-type]
        (lambda: client.jobs(count="x"), "count: 'x' is of"),  # type: ignore[arg-type]
        (lambda: client.approve(["x"]), "job_ids: .* is of"),  # type: ignore[list-item]
        (lambda: forge_client.wait([], timeout="soon"), "timeout: 'soon' is not a duration"),
        (lambda: forge_client.wait([], timeout=[]), r"timeout: \[\] is of"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ClientError, match=said):
            wrong()
    assert client.overview().workers
    assert {check.name for check in client.health()} >= {"store", "workers"}
    with pytest.raises(NotFound) as caught:
        client.job("nope")
    assert caught.value.hint.startswith("client.jobs() lists the jobs")


def test_a_job_is_submitted_and_awaited_in_asyncio(rig: Rig, store_url: str, project: Path) -> None:
    async def run() -> tuple[AsyncJob, object]:
        async with AsyncClient(database_url=rig.url, store_url=store_url, owner="ann") as client:
            (project / ".env").write_text("KEY=x", encoding="utf-8")
            with pytest.warns(UserWarning, match=r"include=\['.env'\]") as warned:
                # A task's frames are not those of its caller.
                job, *_ = await asyncio.gather(client.submit(project, "ls", gpus=0, name="x"))
            assert warned[0].filename == __file__
            (project / ".env").unlink()
            plan = await forge_client.dry_run(client.submit, project, "ls", gpus=0)
            assert (len(plan.jobs), rig.count("job")) == (1, 1)
            await asyncio.to_thread(finish, rig, {"loss": 1.0})
            return job, await asyncio.wait_for(job.result(), 60)

    job, found = asyncio.run(run())
    assert (job.id, found) == (1, {"loss": 1.0})


def test_a_function_takes_the_fields_of_a_job_and_names_its_packages(
    client: Client, project: Path
) -> None:
    def double(number: int) -> int:
        return 2 * number

    there = job(client=client, folder=project, packages=["numpy>=2"], gpus=1)(double)
    one, other = there.options(name="x", idempotency_key="k").map([1, 2])
    spec = one.status().spec
    assert (spec["resources"]["gpus"], spec["requirements"]) == (
        1, ".forge-function/requirements.txt",
    )  # fmt: skip
    assert [each.name for each in (one, other)] == ["x", "x"]
    assert [each.status().spec["command"][-1] for each in (one, other)] == ["0", "1"]
    with pytest.raises(ClientError, match="cannot be sent to a job"):
        there.submit(Lock())  # type: ignore[arg-type]


def test_a_job_is_run_again_and_its_code_fetched_and_compared(
    client: Client, project: Path, tmp_path: Path
) -> None:
    first = client.submit(project, "ls", name="x", gpus=2, gpu_model="a*", env={"A": "1"})
    again = client.job(first.rerun().id)
    assert again.status().spec == first.status().spec
    other = first.rerun("pwd", gpus=1, env={"LR": "2"}, name="y", image="b").status().spec
    asked = first.status().spec
    resources = {**asked["resources"], "gpus": 1, "gpu_model": "a*"}
    assert other == {
        **asked, "command": ["pwd"], "env": {"A": "1", "LR": "2"}, "image": "b",
        "resources": resources,
    }  # fmt: skip
    several = client.submit(project, "ls", nodes="2..4", launcher="torchrun")
    for nodes, most, launcher in (
        (3, None, "torchrun"),
        (1, None, "torchrun"),
        ("2..3", 3, "torchrun"),
    ):
        spec = several.rerun(nodes=nodes).status().spec
        assert (spec.get("max_nodes"), spec.get("launcher")) == (most, launcher)
    assert first.diff(again) == ""
    (project / "train.py").write_text("print('bye')\n", encoding="utf-8")
    assert "+print('bye')" in first.diff(project).splitlines()
    code = first.code(tmp_path / "code")
    assert (code / "train.py").read_text(encoding="utf-8") == "print('hello')\n"


def test_a_job_is_tagged_noted_archived_and_deleted(client: Client, rig: Rig) -> None:
    job = client.job(rig.submit(owner="ann"))
    job.tag("paper", "v1")
    job.annotate(note="baseline", remove=["v1"], add=["शोध", "🌱"])
    assert [found.job_id for found in client.jobs("tag:शोध tag:🌱")] == [job.id]
    job.annotate(remove=["शोध", "🌱"])
    for _ in range(2):
        status = client.jobs("tag:paper")[0]
        assert (status.tags, status.note, status.archived) == (["paper"], "baseline", False)
    with pytest.raises(ClientError, match="has not ended"):
        job.annotate(archived=True)
    with pytest.raises(ClientError, match="cannot be a tag"):
        job.tag("two words")
    job.cancel()
    job.annotate(archived=True)
    assert (client.jobs("tag:paper"), job.status().archived) == ([], True)
    for _ in range(2):
        job.delete()
    with pytest.raises(ClientError, match="there is no job"):
        job.status()
