"""Constructed cases of waiting jobs: the expected explanation, and the remedy that helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.model.admin import OwnerSettings
from forge_schema.model.explanation import Chance, Outlook
from forge_schema.model.spec import owner_mark
from forge_schema.model.states import Command, Reason, WorkerKind, WorkerStatus
from forge_schema.read.runs import Benchmarks

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.queue.scene import Scene

A100 = {"name": "NVIDIA A100-SXM4-80GB", "vram_mb": 81_920}
T4 = {"name": "NVIDIA T4", "vram_mb": 16_384}


@dataclass(frozen=True)
class Case:
    """A scene that returns its job; the expected texts for job and worker w; the first remedy.

    `cure` applies the remedy where its own fields do not say everything.
    """

    name: str
    made: Callable[[Scene], int]
    outlook: Outlook
    chance: Chance | None
    remedy: str
    changes: dict[str, Any] | None = None
    says: str = ""
    cure: Callable[[Scene], object] | None = None


def alone(job: dict[str, Any], **machine: Any) -> Callable[[Scene], int]:  # noqa: ANN401  fields of all types
    """Return a scene of one worker and one job."""

    def made(scene: Scene) -> int:
        scene.worker(**machine)
        return scene.submit(**job)

    return made


def unfit(
    name: str, job: dict[str, Any], machine: dict[str, Any], changes: dict[str, Any], says: str = ""
) -> Case:
    made = alone(job, **machine)
    return Case(name, made, Outlook.UNFIT, Chance.UNFIT, "ask_less", changes, says)


def lacking(name: str, job: dict[str, Any], says: str, **comes: Any) -> Case:  # noqa: ANN401  as above
    """Return a case that only another worker can cure."""
    made = alone(job, labels={"forge.runs": "projects"})
    cure: Callable[[Scene], object] = lambda scene: scene.worker("new", **comes)  # noqa: E731
    return Case(name, made, Outlook.UNFIT, Chance.UNFIT, "add_worker", None, says, cure)


def paused(scene: Scene) -> int:
    scene.worker()
    scene.admin.set_queue("night&shift", {"paused": True})
    return scene.submit(queue="night&shift")


def spent(scene: Scene) -> int:
    scene.worker()
    job = scene.submit()
    scene.admin.limit_owner("ann", OwnerSettings(gpu_hours_per_month=0))
    return job


def granted(scene: Scene) -> None:
    scene.admin.limit_owner("ann", OwnerSettings(gpu_hours_per_month=1))


def limited(whose: str, gpus: int, **limits: Any) -> Callable[[Scene], int]:  # noqa: ANN401  limits as `Limits` takes them
    """Return a scene with a running job of ann's, and limits that it uses up."""

    def made(scene: Scene) -> int:
        scene.worker(gpus=[A100] * 4)
        scene.hold(gpus=gpus)
        both: dict[str, Any] = {"max_jobs": None, "max_gpus": None, **limits}
        if whose == "queue":
            scene.admin.set_queue("default", both)
        else:
            scene.admin.limit_owner("ann", OwnerSettings(**both))
        return scene.submit(gpus=gpus)

    return made


def busy(scene: Scene) -> int:
    scene.worker(cpus=4)
    scene.hold(cpus=3)
    return scene.submit(cpus=2)


def gpus_busy(scene: Scene) -> int:
    scene.worker(gpus=[A100, A100])
    scene.hold(gpus=1, devices=(1,))
    return scene.submit(gpus=2)


def gpu_of_another_worker(scene: Scene) -> int:
    """Make two workers on one machine: a GPU in use by one is not free for the other."""
    scene.worker("other", gpus=[T4])
    scene.hold("other", gpus=1, devices=(0,))
    scene.worker(gpus=[T4])
    scene.sql("UPDATE worker SET gpus = (SELECT gpus FROM worker WHERE name = 'other')")
    scene.sql("UPDATE worker SET command = 'drain' WHERE name = 'other'")
    return scene.submit(gpus=1)


def leaves(scene: Scene) -> int:
    scene.worker(kind=WorkerKind.EPHEMERAL)
    scene.hold()
    return scene.submit()


def asked(command: Command) -> Callable[[Scene], int]:
    def made(scene: Scene) -> int:
        scene.registry.command(scene.worker(), command)
        return scene.submit()

    return made


def offline(scene: Scene) -> int:
    worker_id = scene.worker()
    scene.registry.disconnect(worker_id, scene.machines["w"][1].boot_id)
    return scene.submit()


def never_came(scene: Scene) -> int:
    WorkerTokens(scene.database, actor="user:root").create("w")
    return scene.submit()


def labelled_otherwise(scene: Scene) -> int:
    WorkerTokens(scene.database, actor="user:root").create("w", labels={"zone": "eu"})
    return scene.submit(labels={"zone": "us"})


def leaving(scene: Scene) -> int:
    scene.worker()
    scene.heartbeat("w", WorkerStatus.IDLE, draining=True)
    return scene.submit()


def constrained(scene: Scene) -> int:
    scene.worker()
    scene.heartbeat("w", WorkerStatus.CONSTRAINED, constrained="memory at 97%")
    return scene.submit()


def behind(*others: dict[str, Any]) -> Callable[[Scene], int]:
    """Return a scene with other jobs ahead in the queue."""

    def made(scene: Scene) -> int:
        scene.worker()
        for other in others:
            scene.submit(**other)
        return scene.submit()

    return made


def behind_by_share(scene: Scene) -> int:
    scene.worker()
    scene.hold()
    job = scene.submit()
    scene.submit(owner="bob")
    return job


def reserved(scene: Scene) -> int:
    """Make a job for which a worker reserves two GPUs while only one is free."""
    scene.patience_s = 0.0
    scene.worker(gpus=[A100, A100])
    scene.hold(gpus=1, devices=(0,))
    scene.submit(gpus=2, owner="bob")
    return scene.submit(gpus=1)


def delayed(scene: Scene) -> int:
    scene.worker()
    return scene.submit(delay_s=3600)


def backing_off(scene: Scene) -> int:
    scene.worker()
    grant = scene.hold(backoff_s=3600)
    scene.end(grant, Reason.EXIT_CODE, exit_code=1)
    return grant.fence.job_id


def due(*, ticked: bool) -> Callable[[Scene], int]:
    def made(scene: Scene) -> int:
        job = delayed(scene)
        scene.sql("UPDATE scheduled SET run_at = forge_now() - interval '1 s'")
        when = "forge_now()" if ticked else "forge_now() - interval '1 h'"
        scene.sql(f"UPDATE sweeper SET ticked_at = {when}")
        return job

    return made


def come_due(scene: Scene) -> None:
    scene.sql("UPDATE scheduled SET run_at = forge_now()")
    scene.database.rows("promote", job_id=None, count=100, actor="sweeper")


def after_another(scene: Scene) -> int:
    scene.worker()
    return scene.submit(after_any=[scene.submit(delay_s=3600), scene.submit(delay_s=3600)])


def in_line(scene: Scene) -> int:
    scene.worker()
    return [scene.submit(sweep="s", parallel=1, delay_s=3600 * (n < 1)) for n in range(4)][-1]


def raise_the_cap(scene: Scene) -> None:
    Benchmarks(scene.database, owner="ann", actor="user:ann").set_parallel("s", 4)
    for _ in range(2):
        assert scene.claim() is not None


def unapproved(scene: Scene) -> int:
    scene.worker()
    scene.admin.limit_owner("ann", OwnerSettings(approve_cost=0))
    return scene.submit(timeout_s=3600)


def approve(scene: Scene) -> None:
    waiting = scene.database.rows("approvals", owner="ann", sweep=None, after=0, count=10)
    jobs = [row["job_id"] for row in waiting]
    scene.database.rows("approve", job_ids=jobs, actor="user:root")


def end_the_others(scene: Scene) -> None:
    scene.sql("UPDATE scheduled SET run_at = forge_now()")
    scene.database.rows("promote", job_id=None, count=100, actor="sweeper")
    for _ in range(2):
        grant = scene.claim()
        assert grant is not None
        scene.end(grant, Reason.TIMEOUT)


def paused_and_unfit(scene: Scene) -> int:
    scene.worker(memory_mb=512)
    scene.admin.set_queue("default", {"paused": True})
    return scene.submit(memory_mb=1024)


PLAIN = {"forge.runs": "images,projects"}
GPU = {"gpus": [T4], "cpus": 8}
ZONE = {"labels": {"zone": "us"}}
CASES = [
    Case("no worker", lambda s: s.submit(cpus=2, labels={"zone": "eu*"}), Outlook.NO_WORKER,
         None, "add_worker", None, "label zone=eu*",
         lambda s: s.worker("new", labels={"zone": "eu-1"})),
    unfit("CPUs", {"cpus": 9.5}, {}, {"cpus": 8.0}, "8 CPUs instead of 9.5"),
    unfit("memory", {"memory_mb": 9000}, {}, {"memory_mb": 8192},
          "8 GiB of memory instead of 8.8 GiB"),
    unfit("disk", {"disk_mb": 9000}, {}, {"disk_mb": 8192}, "8 GiB of disk"),
    unfit("GPUs", {"gpus": 2}, GPU, {"gpus": 1}, "1 GPU instead of 2"),
    unfit("GPUs of two kinds", {"gpus": 2}, {"gpus": [T4, A100]}, {"gpus": 1}),
    unfit("GPU model", {"gpus": 1, "gpu_model": "a100*"}, GPU, {"gpu_model": "NVIDIA T4"}),
    unfit("VRAM", {"gpus": 1, "vram_mb": 24_576}, GPU, {"vram_mb": 16_384},
          "16 GiB of VRAM per GPU instead of 24 GiB: then w can run it"),
    unfit("VRAM of the model", {"gpus": 1, "gpu_model": "t4", "vram_mb": 20_000},
          {"gpus": [T4, A100]}, {"vram_mb": 16_384}),
    unfit("accelerator", {"accelerator": "cuda"}, {}, {"accelerator": "cpu"}),
    unfit("label", {"labels": {"zone": "eu*"}}, ZONE, {"labels": {"zone": "us"}},
          "zone=us instead of eu*"),
    unfit("no such label", {"labels": {"zone": "eu"}}, {}, {"labels": {"zone": None}},
          "drop --label zone=eu: then w can run it"),
    unfit("target", {"target": "local"}, {}, {"target": "auto"}),
    unfit("two things", {"labels": {"zone": "eu"}, "gpus": 1, "vram_mb": 80_000}, {**GPU, **ZONE},
          {"vram_mb": 16_384, "labels": {"zone": "us"}}),
    lacking("no GPU anywhere", {"gpus": 1}, "1 GPU", gpus=[A100]),
    lacking("no images", {"image": "me/train:1"}, "another worker with support for images"),
    lacking("no builds", {"dockerfile": "Dockerfile"}, "support for builds",
            labels={"forge.runs": "images,builds"}),
    Case("no image", alone({}, labels={"forge.runs": "images"}), Outlook.UNFIT, Chance.UNFIT,
         "name_image", says="--image, or start w with --default-image",
         cure=lambda s: s.worker(labels={"forge.runs": "images,projects"})),
    lacking("no handler", {"kind": "custom", "handler": "thumb"},
            "another worker with the handler thumb", labels={"forge.handlers": ",thumb,"}),
    Case("no secret", alone({"secrets": ["NOPE"]}), Outlook.UNFIT, Chance.UNFIT, "add_secret",
         says="write the secret NOPE to a file of this name in the folder of secrets on w",
         cure=lambda s: s.worker(labels={**PLAIN, "forge.secret.NOPE": "*"})),
    Case("another owner's secret",
         alone({"secrets": ["A", "B"]},
               labels={**PLAIN, "forge.secret.A": ",0123,", "forge.secret.B": "*"}),
         Outlook.UNFIT, Chance.UNFIT, "add_secret", says="the secret A to a file",
         cure=lambda s: s.worker(labels={
             **PLAIN, "forge.secret.A": f",0123,{owner_mark('ann')},", "forge.secret.B": "*"})),
    Case("paused", paused, Outlook.HELD, Chance.STARTS, "resume_queue",
         says="forge queue resume 'night&shift'"),
    Case("budget spent", spent, Outlook.HELD, Chance.STARTS, "raise_budget", says="ann",
         cure=granted),
    Case("queue's jobs", limited("queue", 0, max_jobs=1), Outlook.HELD, Chance.STARTS,
         "raise_queue_jobs", says="forge queue limit default --jobs 2"),
    Case("queue's GPUs", limited("queue", 2, max_gpus=3), Outlook.HELD, Chance.STARTS,
         "raise_queue_gpus", says="forge queue limit default --gpus 4"),
    Case("owner's jobs", limited("owner", 0, max_jobs=1), Outlook.HELD, Chance.STARTS,
         "raise_owner_jobs", says="forge queue limit --owner ann --jobs 2"),
    Case("owner's GPUs", limited("owner", 2, max_gpus=2), Outlook.HELD, Chance.STARTS,
         "raise_owner_gpus", says="forge queue limit --owner ann --gpus 4"),
    Case("busy", busy, Outlook.BUSY, Chance.BUSY, "wait_for_room", says="w"),
    Case("GPUs busy", gpus_busy, Outlook.BUSY, Chance.BUSY, "wait_for_room"),
    Case("a GPU of two workers", gpu_of_another_worker, Outlook.BUSY, Chance.BUSY, "wait_for_room"),
    Case("leaves after its job", leaves, Outlook.BUSY, Chance.BUSY, "add_worker",
         cure=lambda s: s.worker("new")),
    Case("draining", asked(Command.DRAIN), Outlook.UNAVAILABLE, Chance.DRAINING, "undrain",
         says="forge worker drain w --undo"),
    Case("leaving", leaving, Outlook.UNAVAILABLE, Chance.DRAINING, "start_worker",
         cure=lambda s: s.worker()),
    Case("stopping", asked(Command.STOP), Outlook.UNAVAILABLE, Chance.STOPPING, "start_worker",
         cure=lambda s: s.worker()),
    Case("offline", offline, Outlook.UNAVAILABLE, Chance.OFFLINE, "start_worker",
         cure=lambda s: s.worker()),
    Case("never came", never_came, Outlook.UNFIT, Chance.NEVER_CAME, "start_worker",
         says="which has never connected",
         cure=lambda s: s.worker()),
    Case("never came, and is labelled otherwise", labelled_otherwise, Outlook.UNFIT, Chance.UNFIT,
         "add_worker", says="label zone=us",
         cure=lambda s: s.worker("new", labels={**PLAIN, "zone": "us"})),
    Case("constrained", constrained, Outlook.UNAVAILABLE, Chance.CONSTRAINED, "relieve",
         says="memory at 97%", cure=lambda s: s.heartbeat("w", WorkerStatus.IDLE)),
    Case("behind by priority", behind({"priority": 5}), Outlook.BEHIND, Chance.BEHIND,
         "raise_priority", {"priority": 6}),
    Case("behind by age", behind({}, {}), Outlook.BEHIND, Chance.BEHIND, "raise_priority",
         {"priority": 1}),
    Case("behind by fair share", behind_by_share, Outlook.BEHIND, Chance.BEHIND, "raise_priority",
         {"priority": 1}),
    Case("reserved", reserved, Outlook.BEHIND, Chance.RESERVED, "raise_priority", {"priority": 1}),
    Case("delayed", delayed, Outlook.SCHEDULED, Chance.STARTS, "wait", cure=come_due),
    Case("backing off", backing_off, Outlook.SCHEDULED, Chance.STARTS, "wait", cure=come_due),
    Case("due", due(ticked=True), Outlook.SCHEDULED, Chance.STARTS, "wait", cure=come_due),
    Case("due and no sweeper", due(ticked=False), Outlook.SCHEDULED, Chance.STARTS, "start_sweeper",
         cure=come_due),
    Case("after another job", after_another, Outlook.HELD, Chance.STARTS, "wait_for_job",
         says="forge explain", cure=end_the_others),
    Case("behind others of its sweep", in_line, Outlook.HELD, Chance.STARTS, "wait_for_turn",
         says="forge sweep show s --parallel 4", cure=raise_the_cap),
    Case("unapproved", unapproved, Outlook.HELD, Chance.STARTS, "approve",
         says="ask an admin to approve it forge approve", cure=approve),
    Case("paused and unfit", paused_and_unfit, Outlook.HELD, Chance.UNFIT, "resume_queue"),
]  # fmt: skip
