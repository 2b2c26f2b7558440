"""Machines by demand: the queries of infra/autoscaling, and a group that they scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types
from forge_functions.settings import ServerSettings
from forge_schema.model.states import Command, WorkerStatus
from forge_worker.commands.enrol import EnrolSettings
from forge_worker.settings.settings import WorkerSettings
from moto.server import ThreadedMotoServer
from support.cloud.auto_scaling import LARGEST, Cloud
from support.cloud.cloudformation import INFRA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.queue.rig import Rig, Worker

FOLDER = INFRA / "autoscaling"


@pytest.fixture(scope="module")
def keda() -> dict[str, dict[str, Any]]:
    """The documents of keda.yaml, by their kind."""
    text = (FOLDER / "keda.yaml").read_text(encoding="utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def counted(rig: Rig, keda: dict[str, dict[str, Any]]) -> int:
    """Run KEDA's query as KEDA does: one row, one column."""
    (trigger,) = keda["ScaledJob"]["spec"]["triggers"]
    (row,) = rig.rows(trigger["metadata"]["query"])
    (value,) = row.values()
    assert isinstance(value, int)
    return value


def test_kedas_query_counts_what_waits_and_what_runs(
    rig: Rig, keda: dict[str, dict[str, Any]]
) -> None:
    assert counted(rig, keda) == 0
    rig.submit_many(3)
    rig.submit(accelerator="cuda", gpus=1)
    rig.submit(accelerator="rocm", gpus=1)
    rig.submit(accelerator="cuda", gpus=8)
    rig.submit(delay_s=60)
    assert counted(rig, keda) == 4
    grant = rig.worker().claim_one()
    assert counted(rig, keda) == 4, "a pod that has its job is still wanted"
    rig.finish(grant)
    assert counted(rig, keda) == 3


def test_a_paused_queue_wants_no_machine(rig: Rig, keda: dict[str, dict[str, Any]]) -> None:
    rig.submit(queue="nightly")
    rig.admin.pause("nightly")
    assert counted(rig, keda) == 0


def test_kedas_pods_have_settings_that_a_worker_knows(keda: dict[str, dict[str, Any]]) -> None:
    spec = pod_of(keda)
    ((enrol,), (worker,)) = spec["initContainers"], spec["containers"]
    for container, settings in ((enrol, EnrolSettings), (worker, WorkerSettings)):
        known = {f"FORGE_{field.upper()}" for field in settings.model_fields}
        assert set(given(container)) <= known
    # KEDA may be told never to end a worker only if that worker leaves by itself.
    assert given(worker)["FORGE_EPHEMERAL"] == "true"
    assert spec["restartPolicy"] == "Never"
    assert enrol["command"] == ["python3", "-m", "forge_worker.commands.enrol"]
    for name in ("FORGE_URL", "FORGE_TOKEN_FILE"):
        assert given(enrol)[name] == given(worker)[name]


def test_kedas_pods_hold_no_secret_but_their_own_workers_token(
    keda: dict[str, dict[str, Any]],
) -> None:
    spec = pod_of(keda)
    ((enrol,), (worker,)) = spec["initContainers"], spec["containers"]
    for container in (enrol, worker):
        assert "envFrom" not in container
        assert not {"FORGE_DATABASE_URL", "FORGE_STORE_URL", "FORGE_TOKEN"} & set(given(container))
        assert all("valueFrom" not in variable for variable in container["env"])
    assert keda["Secret"]["metadata"]["name"] not in yaml.safe_dump(spec)
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == keda["ServiceAccount"]["metadata"]["name"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (projected,) = volumes["identity"]["projected"]["sources"]
    assert projected["serviceAccountToken"]["audience"] == default_audience()
    assert "identity" not in {mount["name"] for mount in worker["volumeMounts"]}


def test_kedas_own_login_reads_the_demand_and_nothing_else(
    rig: Rig, keda: dict[str, dict[str, Any]]
) -> None:
    (reference,) = keda["TriggerAuthentication"]["spec"]["secretTargetRef"]
    secret = keda["Secret"]
    assert reference["name"] == secret["metadata"]["name"]
    assert reference["key"] in secret["stringData"]
    rig.submit()
    (trigger,) = keda["ScaledJob"]["spec"]["triggers"]
    with psycopg.connect(rig.database.url) as connection:
        connection.execute("SET ROLE forge_report")
        assert connection.execute(trigger["metadata"]["query"]).fetchone() == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM job")


def pod_of(keda: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = keda["ScaledJob"]["spec"]["jobTargetRef"]["template"]["spec"]
    return spec


def given(container: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a container."""
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def default_audience() -> object:
    return ServerSettings.model_fields["enrol_audience"].default


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def cloud(endpoint: str, rig: Rig) -> Cloud:
    return Cloud(endpoint, rig)


def hear(worker: Worker) -> None:
    """Let a worker renew, so that it hears what it is asked to do."""
    renewal = worker.rig.queue.renew(worker.id, worker.machine.boot_id, [], WorkerStatus.IDLE)
    assert renewal is not None


def test_an_empty_queue_wants_no_machine(cloud: Cloud) -> None:
    assert cloud.look() == ""
    assert cloud.machines() == []


def test_machines_come_with_demand_up_to_the_largest_size(cloud: Cloud, rig: Rig) -> None:
    rig.submit_many(5)
    cloud.look(jobs_each=4)
    assert len(cloud.machines()) == 2
    cloud.look()
    assert len(cloud.machines()) == LARGEST
    assert cloud.look() == "", "a second look changes nothing"


def test_idle_machines_go_and_a_busy_one_stays(cloud: Cloud, rig: Rig) -> None:
    rig.submit_many(3)
    cloud.look()
    busy, *others = cloud.workers()
    grant = busy.claim_one()
    for other in others:
        rig.finish(other.claim_one())
    said = cloud.look()
    assert said.count("draining") == 2
    assert len(cloud.machines()) == LARGEST, "none goes before it has heard"
    for worker in (busy, *others):
        hear(worker)
    assert cloud.look().count("ending") == 2
    assert cloud.machines() == [busy.name]
    rig.finish(grant)


def test_a_draining_machine_that_got_a_job_after_all_stays_until_it_is_done(
    cloud: Cloud, rig: Rig
) -> None:
    rig.submit()
    cloud.look()
    (worker,) = cloud.workers()
    grant = worker.claim_one()
    rig.registry.command(worker.id, Command.DRAIN)
    hear(worker)
    cloud.look()
    assert cloud.machines() == [worker.name]
    rig.finish(grant)
    cloud.look()
    assert cloud.machines() == []


def test_workers_of_other_kinds_are_left_alone(cloud: Cloud, rig: Rig) -> None:
    rig.worker("on-prem")
    rig.worker("i-00000000000000000")
    cloud.look()
    assert {row["name"]: row["command"] for row in rig.registry.workers()} == {
        "on-prem": None,
        "i-00000000000000000": None,
    }


def test_a_machine_that_is_long_gone_is_forgotten(cloud: Cloud, rig: Rig) -> None:
    rig.worker("i-00000000000000000")
    rig.clock.advance(3_600)
    rig.tick.mark_offline()
    cloud.look()
    assert rig.count("worker") == 1, "it may be cut off for an hour"
    rig.clock.advance(86_400)
    cloud.look()
    assert rig.count("worker") == 0
