"""infra/kubernetes, rendered by kubectl: closed, with settings that the programs know."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from forge_functions.settings import FunctionsSettings as ServerProcess
from forge_functions.settings import ServerSettings
from forge_schema.sweeper.main import ProcessSettings
from forge_worker.commands.enrol import EnrolSettings
from forge_worker.settings.settings import WorkerSettings
from support.cloud.kubernetes import environment, of_kind, pods, rendered

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings
    from support.cloud.kubernetes import Documents
    from support.queue.rig import Rig

SETTINGS: dict[str, type[BaseSettings]] = {
    "server": ServerProcess,
    "sweeper": ProcessSettings,
    "enrol": EnrolSettings,
    "worker": WorkerSettings,
}
SECRETS = {"FORGE_DATABASE_URL", "FORGE_STORE_URL", "FORGE_SERVER_SECRET", "FORGE_TOKEN"}
POOLS = ("forge-worker-cpu", "forge-worker-cuda-1", "forge-worker-cuda-8")
OLDEST, NEWEST = "1.25", "1.37"
PROJECT = Path(__file__).parents[3] / "pyproject.toml"
VERSION: str = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["version"]


@pytest.fixture(scope="module")
def server() -> Documents:
    return rendered("example/server")


@pytest.fixture(scope="module")
def workers() -> Documents:
    return rendered("example/workers")


@pytest.fixture(scope="module")
def everything(server: Documents, workers: Documents) -> Documents:
    return [*server, *workers]


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def queries(workers: Documents) -> dict[str, str]:
    return {
        pool["metadata"]["name"]: pool["spec"]["triggers"][0]["metadata"]["query"]
        for pool in of_kind(workers, "ScaledJob")
    }


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_the_api_takes_them(everything: Documents, release: str) -> None:
    # Slow to import for those who only collect.
    from kubernetes_validate import validate  # noqa: PLC0415

    for document in everything:
        if document["kind"] == "ScaledJob":
            job = {**document, "apiVersion": "batch/v1", "kind": "Job"}
            validate({**job, "spec": document["spec"]["jobTargetRef"]}, release, strict=True)
        elif "keda" not in document["apiVersion"]:
            validate(document, release, strict=True)


def test_every_pod_may_do_little(everything: Documents) -> None:
    templates = pods(everything)
    assert set(templates) == {
        *("forge-server", "forge-sweeper", f"forge-migrate-{VERSION.replace('.', '-')}"),
        *POOLS,
    }
    for name, template in templates.items():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(template):
            little = container["securityContext"]
            assert little["readOnlyRootFilesystem"] is True, name
            assert little["allowPrivilegeEscalation"] is False, name
            assert little["capabilities"] == {"drop": ["ALL"]}, name
            assert {"requests", "limits"} <= set(container["resources"]), name
            assert container["image"].startswith("registry.example/forge-"), name
            assert container["image"].endswith(f":{VERSION}"), name


def test_no_pod_of_a_job_has_a_way_to_the_database_or_the_store(
    server: Documents, workers: Documents
) -> None:
    assert not of_kind(workers, "Secret")
    for name in POOLS:
        template = pods(workers)[name]
        for container in containers(template):
            assert "envFrom" not in container
            assert not SECRETS & set(environment(container))
            given = [one for one in environment(container).values() if isinstance(one, dict)]
            assert given == [{"configMapKeyRef": {"name": "forge-worker", "key": "url"}}]
        kinds = {kind for volume in template["spec"]["volumes"] for kind in set(volume) - {"name"}}
        assert kinds == {"emptyDir", "projected"}
    spaces = {d["metadata"]["namespace"] for d in server if "namespace" in d["metadata"]}
    assert spaces == {"forge"}
    (closed,) = of_kind(workers, "NetworkPolicy")
    assert closed["spec"]["podSelector"] == {}
    assert "ingress" not in closed["spec"]
    ports = {port["port"] for rule in closed["spec"]["egress"] for port in rule["ports"]}
    assert ports == {53, 80, 443}, "a job's pod reaches no database"


def test_a_pool_enrols_by_an_identity_that_the_job_does_not_see(
    server: Documents, workers: Documents
) -> None:
    (config,) = of_kind(server, "ConfigMap")
    (account,) = of_kind(workers, "ServiceAccount")
    named = f"{account['metadata']['namespace']}:{account['metadata']['name']}"
    assert config["data"]["FORGE_ENROL_ACCOUNTS"] == named
    for name in POOLS:
        spec = pods(workers)[name]["spec"]
        ((enrol,), (worker,)) = spec["initContainers"], spec["containers"]
        assert enrol["command"] == ["python3", "-m", "forge_worker.commands.enrol"]
        for same in ("FORGE_URL", "FORGE_TOKEN_FILE"):
            assert environment(enrol)[same] == environment(worker)[same]
        # KEDA may be told never to end a worker only if that worker leaves by itself.
        assert environment(worker)["FORGE_EPHEMERAL"] == "true"
        assert spec["restartPolicy"] == "Never"
        notice = float(environment(worker)["FORGE_TERM_NOTICE_S"])
        assert notice < spec["terminationGracePeriodSeconds"]
        assert spec["serviceAccountName"] == account["metadata"]["name"]
        (identity,) = [v for v in spec["volumes"] if v["name"] == "identity"]
        (projected,) = identity["projected"]["sources"]
        audience = ServerSettings.model_fields["enrol_audience"].default
        assert projected["serviceAccountToken"]["audience"] == audience
        assert "identity" not in {mount["name"] for mount in worker["volumeMounts"]}


def test_all_variables_are_settings_of_their_program(everything: Documents) -> None:
    (shared,) = [d for d in of_kind(everything, "ConfigMap") if "FORGE_STORE_URL" in d["data"]]
    known = {f"FORGE_{field.upper()}" for field in ServerSettings.model_fields}
    assert set(shared["data"]) <= known
    for template in pods(everything).values():
        for container in containers(template):
            if (settings := SETTINGS.get(container["name"])) is not None:
                known = {f"FORGE_{field.upper()}" for field in settings.model_fields}
                assert set(environment(container)) - {"SSL_CERT_FILE"} <= known


def test_a_pools_worker_offers_what_its_pod_has(workers: Documents) -> None:
    for name in POOLS:
        (worker,) = pods(workers)[name]["spec"]["containers"]
        given, resources = environment(worker), worker["resources"]
        assert given["FORGE_CPUS"] == resources["requests"]["cpu"]
        gib = int(resources["limits"]["memory"].removesuffix("Gi"))
        assert 0 < int(given["FORGE_MEMORY_MB"]) < gib << 10
        gpus = resources["limits"].get("nvidia.com/gpu", "0")
        assert gpus == {"cpu": "0", "1": "1", "8": "8"}[name.rpartition("-")[2]]


def test_selectors_and_ports_find_their_pods(server: Documents) -> None:
    templates = pods(server)
    selectors = {
        document["metadata"]["name"]: selector
        for kind in ("Service", "Deployment", "PodDisruptionBudget")
        for document in of_kind(server, kind)
        for selector in [document["spec"]["selector"]]
    }
    for name, selector in selectors.items():
        labels = templates[name]["metadata"]["labels"]
        assert selector.get("matchLabels", selector).items() <= labels.items()
    (service,) = of_kind(server, "Service")
    (ingress,) = of_kind(server, "Ingress")
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    ports = [port["name"] for port in templates["forge-server"]["spec"]["containers"][0]["ports"]]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ports
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    opened = [p for p in of_kind(server, "NetworkPolicy") if p["spec"].get("ingress")]
    assert [p["spec"]["podSelector"]["matchLabels"] for p in opened] == [{"app": "forge-server"}]


def test_each_shape_of_job_wants_pods_of_one_pool(rig: Rig, workers: Documents) -> None:
    def wanted() -> dict[str, int]:
        return {name: rig.row(query)["coalesce"] for name, query in queries(workers).items()}

    assert wanted() == dict.fromkeys(POOLS, 0)
    rig.submit_many(3)
    rig.submit(accelerator="cuda", gpus=1)
    rig.submit(accelerator="rocm", gpus=1)
    rig.submit(accelerator="cuda", gpus=8)
    rig.submit(delay_s=60)
    assert wanted() == dict(zip(POOLS, (3, 1, 1), strict=True))
    grant = rig.worker().claim_one()
    assert wanted()["forge-worker-cpu"] == 3, "a pod that has its job is still wanted"
    rig.finish(grant)
    assert wanted()["forge-worker-cpu"] == 2
    rig.submit(queue="nightly")
    rig.admin.set_queue("nightly", {"paused": True})
    assert wanted()["forge-worker-cpu"] == 2, "a paused queue wants no pod"


def test_kedas_own_login_reads_the_demand_and_nothing_else(rig: Rig, workers: Documents) -> None:
    (authentication,) = of_kind(workers, "TriggerAuthentication")
    for pool in of_kind(workers, "ScaledJob"):
        (trigger,) = pool["spec"]["triggers"]
        assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    rig.submit()
    with psycopg.connect(rig.database.url) as connection:
        connection.execute("SET ROLE forge_report")
        assert connection.execute(queries(workers)["forge-worker-cpu"]).fetchone() == (1,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM job")
