"""`explain` on constructed cases: its text, and that its suggestion does start the job."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from forge_functions.dashboard import words
from forge_functions.dashboard.explained import in_words
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.explanation import Chance, Outlook
from forge_schema.model.job import JobUnknown
from forge_schema.model.states import Reason
from forge_schema.model.worker import Speed
from support.explain.explained_cases import A100, CASES, T4, Case, behind, busy
from support.queue.scene import Scene, Scenes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forge_schema.model.explanation import Explanation, Remedy


DEVANAGARI = re.compile("[\u0900-\u097f]")


@pytest.fixture(scope="module")
def scenes(shared_database_url: str) -> Iterator[Scenes]:
    made = Scenes(shared_database_url)
    yield made
    made.close()


@pytest.fixture
def scene(scenes: Scenes) -> Iterator[Scene]:
    with scenes.scene() as lent:
        yield lent


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_says_what_is_in_the_way_and_what_starts_the_job(scene: Scene, case: Case) -> None:
    job_id = case.made(scene)
    said = scene.explain(job_id)
    assert said.outlook is case.outlook
    assert _chance(said, "w") is case.chance
    remedy = said.remedies[0]
    assert (remedy.code, remedy.changes) == (case.remedy, case.changes)
    assert case.says in f"{remedy.text} {remedy.command}"
    _reads_in_hindi(said)
    assert scene.explain(_cured(scene, case, said)).outlook is Outlook.STARTS


def _reads_in_hindi(said: Explanation) -> None:
    words.reads("hi", None)
    told = in_words(said)
    words.reads("en", None)
    texts = [told.text, *(one.text for one in told.limits), *(one.text for one in told.remedies)]
    texts += [one.text for one in told.workers]
    assert [text for text in texts if not DEVANAGARI.search(text)] == []


def _chance(said: Explanation, name: str) -> Chance | None:
    return next((one.chance for one in said.workers if one.worker == name), None)


def _cured(scene: Scene, case: Case, said: Explanation) -> int:
    """Apply all needed remedies and the first alternative, and return the job that starts."""
    others = [remedy for remedy in said.remedies if not remedy.needed]
    job_id = said.job_id
    for remedy in [one for one in said.remedies if one.needed] + others[:1]:
        job_id = _done(scene, case, remedy, job_id)
    return job_id


def _done(scene: Scene, case: Case, remedy: Remedy, job_id: int) -> int:
    if case.cure is not None:
        case.cure(scene)
    elif remedy.changes is not None:
        return _changed(scene, job_id, remedy)
    elif remedy.command is not None:
        _typed(scene, shlex.split(remedy.command))
    else:
        assert remedy.code == "wait_for_room"
        scene.sql("DELETE FROM lease")
    return job_id


def _changed(scene: Scene, job_id: int, remedy: Remedy) -> int:
    """Submit a job again, with a remedy's changes."""
    row = scene.database.row("explain_job", job_id=job_id)
    assert row is not None
    names = ("gpus", "gpu_model", "vram_mb", "cpus", "memory_mb", "disk_mb", "accelerator")
    labels = {name: value for name, value in row["labels"].items() if name != "forge.runs"}
    before = {**{name: row[name] for name in names}, "target": row["target"]}
    changes: dict[str, Any] = dict(remedy.changes or {})
    labels |= changes.pop("labels", {})
    kept = {name: value for name, value in labels.items() if value is not None}
    return scene.submit(**{**before, "owner": row["owner"], **changes}, labels=kept)


def _typed(scene: Scene, words: list[str]) -> None:
    match words[1:]:
        case ["queue", "resume", queue]:
            scene.admin.set_queue(queue, {"paused": False})
        case ["queue", "limit", "--owner", owner, what, number]:
            scene.admin.limit_owner(owner, OwnerSettings(**_limits(what, number)))
        case ["queue", "limit", queue, what, number]:
            scene.admin.set_queue(queue, _limits(what, number))
        case ["worker", "drain", name, "--undo"]:
            scene.registry.command(scene.machines[name][0], None)
        case _:
            pytest.fail(f"nothing is known of {words}")


def _limits(what: str, number: str) -> dict[str, Any]:
    return {"max_jobs": None, "max_gpus": None, f"max_{what.removeprefix('--')}": int(number)}


def test_a_limit_is_told_with_its_numbers(scene: Scene) -> None:
    scene.worker(gpus=[A100] * 4)
    scene.hold(gpus=2)
    scene.admin.set_queue("default", {"max_jobs": None, "max_gpus": 3})
    (limit,) = scene.explain(scene.submit(gpus=2)).limits
    assert (limit.code, limit.used, limit.wanted, limit.limit) == ("queue_gpus", 2, 2, 3)
    said = "the queue default may have 3 GPUs at once: 2 in use, and the job needs 2"
    assert limit.text == said


def test_each_requirement_says_what_is_wanted_there_and_free(scene: Scene) -> None:
    scene.worker(gpus=[A100, A100, T4])
    scene.hold(gpus=1, gpu_model="a100*", cpus=3, devices=(0,))
    wanted = {"gpus": 2, "gpu_model": "A100*", "vram_mb": 90_000, "cpus": 6}
    (worker,) = scene.explain(scene.submit(**wanted)).workers
    told = {one.name: (one.wanted, one.has, one.free, one.met) for one in worker.requirements}
    assert told["cpus"] == (6, 8, 5, True)
    assert told["gpus"] == (2, 2, 1, True)
    models = ["2 x NVIDIA A100-SXM4-80GB", "1 x NVIDIA T4"]
    assert told["gpu_model"] == ("A100*", models, None, True)
    assert told["vram_mb"] == (90_000, 81_920, None, False)
    assert worker.lacking == ["vram_mb"]


def test_the_nearest_worker_comes_first_and_the_rest_is_counted(scene: Scene) -> None:
    scene.worker("far", labels={"forge.runs": "images"})
    scene.worker("near", gpus=[T4])
    scene.worker("nearer", gpus=[{**A100, "vram_mb": 40_000}])
    scene.worker("gone", gpus=[A100])
    scene.sql("UPDATE worker SET status = 'offline' WHERE name = 'gone'")
    scene.worker("full", gpus=[A100])
    scene.hold("full", gpus=1, vram_mb=50_000, devices=(0,))
    job = scene.submit(gpus=1, vram_mb=50_000)
    said = scene.explain(job, workers=3)
    assert [one.worker for one in said.workers] == ["full", "nearer", "near"]
    assert (said.workers_in_all, said.left_out) == (5, 2)
    assert said.counts == {Chance.BUSY: 1, Chance.OFFLINE: 1, Chance.UNFIT: 3}
    assert scene.explain(job, workers=0).left_out == 5


def test_of_workers_that_would_start_it_the_preferred_one_comes_first(scene: Scene) -> None:
    scene.worker("a-local", local=True)
    scene.worker("b-cold")
    warm = scene.worker("c-warm")
    job = scene.submit(image="python:3.13")
    scene.sql(
        "INSERT INTO idle SELECT id, '', boot_id, cpus, memory_mb, disk_mb, 0, 0, 1,"
        " (SELECT parts FROM ready) FROM worker WHERE id = %s",
        warm,
    )
    said = scene.explain(job)
    assert [(one.worker, one.preference, one.text) for one in said.workers] == [
        ("c-warm", 15, "takes it with its next claim; it has the job's image"),
        ("b-cold", 11, "takes it with its next claim"),
        ("a-local", 3, "takes it with its next claim, unless a remote worker does first"),
    ]
    assert "c-warm takes it" in said.text


def test_of_workers_that_fetch_the_same_the_fastest_comes_first(scene: Scene) -> None:
    scene.worker("a-unmeasured")
    scene.worker("b-slow", speed=Speed("numpy", cpus=4, cpu={"fp32": 100}))
    scene.worker("c-fast", speed=Speed("numpy", cpus=4, cpu={"fp32": 400}))
    said = scene.explain(scene.submit())
    assert [one.worker for one in said.workers] == ["c-fast", "b-slow", "a-unmeasured"]
    fast, slow, unmeasured = (one.speed for one in said.workers)
    assert 1 > fast > slow > unmeasured == 0


def test_others_in_front_are_counted_and_never_named(scene: Scene) -> None:
    secret = {"owner": "eve", "name": "eves-own", "priority": 2}
    job = behind(secret, secret, {})(scene)
    said = scene.explain(job)
    assert (said.ahead, said.workers[0].ahead) == (3, 3)
    assert "3 jobs are ahead of it" in said.text
    assert "eve" not in said.model_dump_json()


def test_a_large_fleet_is_answered_within_bounds(scene: Scene) -> None:
    scene.worker(gpus=[T4])
    scene.sql(
        "INSERT INTO worker (name, boot_id, status, accelerator, gpus, cpus, memory_mb, disk_mb,"
        " labels, registered_at, last_seen_at)"
        " SELECT 'n' || n, gen_random_uuid(), 'idle', accelerator, gpus, cpus, memory_mb, disk_mb,"
        " labels, forge_now(), forge_now() FROM worker, generate_series(1, 1100) AS n"
    )
    said = scene.explain(scene.submit(gpus=2), workers=500)
    assert (len(said.workers), said.workers_in_all, said.left_out) == (500, 1101, 601)
    assert said.outlook is Outlook.UNFIT


def test_a_wait_is_guessed_by_what_such_jobs_took_before(scene: Scene) -> None:
    job = busy(scene)
    assert scene.explain(job).estimate is None
    for _ in range(3):
        scene.worker("fast")
        grant = scene.hold("fast", cpus=1)
        ago = "UPDATE lease SET claimed_at = forge_now() - interval '600 s' WHERE job_id = %s"
        scene.sql(ago, grant.fence.job_id)
        scene.end(grant)
    scene.sql("UPDATE lease SET claimed_at = forge_now() - interval '240 s'")
    scene.sql("UPDATE worker SET command = 'drain' WHERE name = 'fast'")
    found = scene.explain(job).estimate
    assert found is not None
    assert found.wait_s == pytest.approx(360, abs=60)
    assert "w" in found.basis


def test_a_wait_is_guessed_by_how_fast_those_in_front_go(scene: Scene) -> None:
    job = behind({}, {}, {})(scene)
    for _ in range(12):
        scene.end(scene.hold())
    found = scene.explain(job).estimate
    assert found is not None
    # Twelve an hour are one in 300 s, and this job is the fourth.
    assert found.wait_s == pytest.approx(1200, rel=0.01)
    assert "12 jobs" in found.basis


def test_a_running_job_is_told_with_its_worker(scene: Scene) -> None:
    scene.worker(gpus=[A100])
    grant = scene.hold(gpus=1, devices=(0,))
    said = scene.explain(grant.fence.job_id)
    assert (said.outlook, said.remedies) == (Outlook.RUNNING, [])
    assert said.run is not None
    assert (said.run.worker, said.run.devices) == ("w", ["GPU-w-0"])
    assert all(one.met for one in said.run.requirements)
    assert (said.run.silent, "silent" in said.text) == (None, False)
    scene.sql("UPDATE worker SET last_seen_at = forge_now() - interval '82 s'")
    scene.sql("UPDATE lease SET expires_at = forge_now() + interval '38 s'")
    said = scene.explain(grant.fence.job_id)
    silence = "; w was not heard from for 1 min 22 s: unless it comes back, its lease ends in 38 s"
    assert said.text.endswith(silence)


ENDS = [
    (Reason.SUCCEEDED, {}, [], ""),
    (Reason.TIMEOUT, {}, ["logs", "timeout", "retry"], "1 attempt: over its time limit"),
    (
        Reason.EXIT_CODE,
        {"max_failures": 0},
        ["logs", "retry"],
        "; no retries were allowed (1",
    ),
    (
        Reason.OOM,
        {"max_failures": 0},
        ["logs", "oom", "retry"],
        "; no retries were allowed (1",
    ),
    (Reason.WORKER_LOST, {"max_losses": 0}, ["retry"], "no restarts after losses"),
    (
        Reason.PREEMPTED,
        {"max_preemptions": 0},
        ["retry"],
        "no restarts after preemptions",
    ),
]


@pytest.mark.parametrize(("reason", "job", "remedies", "says"), ENDS)
def test_an_end_is_told_with_its_budget_and_what_a_retry_would_do(
    scene: Scene, reason: Reason, job: dict[str, Any], remedies: list[str], says: str
) -> None:
    scene.worker()
    grant = scene.hold(**job)
    code = {Reason.SUCCEEDED: 0, Reason.EXIT_CODE: 3}.get(reason)
    scene.end(grant, reason, exit_code=code)
    said = scene.explain(grant.fence.job_id)
    assert said.outlook is Outlook.ENDED
    assert [remedy.code for remedy in said.remedies] == remedies
    assert says in said.text
    (attempt,) = said.attempts
    assert (attempt.worker, attempt.reason, attempt.budget) == ("w", reason, reason.budget)
    assert said.end is not None
    assert said.end.retryable is bool(remedies)
    assert ("attempt 2 from the beginning" in said.end.retry) is bool(remedies)


def test_a_retry_begins_the_budgets_anew(scene: Scene) -> None:
    scene.worker()
    grant = scene.hold(max_failures=0)
    scene.end(grant, Reason.EXIT_CODE, exit_code=1)
    scene.queue.retry(grant.fence.job_id)
    assert {one.used for one in scene.explain(grant.fence.job_id).budgets} == {0}
    again = scene.claim()
    assert again is not None
    scene.end(again, Reason.EXIT_CODE, exit_code=1)
    said = scene.explain(grant.fence.job_id)
    assert [(one.used, one.granted) for one in said.budgets] == [(1, 0), (0, 5), (0, 50)]
    assert [one.attempt for one in said.attempts] == [2, 1]


def test_a_job_that_was_cancelled_while_it_waited(scene: Scene) -> None:
    job = scene.submit()
    scene.queue.cancel(job)
    said = scene.explain(job)
    assert (said.text, said.remedies) == ("it was cancelled after 0 attempts", [])
    with pytest.raises(JobUnknown):
        scene.explain(job + 1)
