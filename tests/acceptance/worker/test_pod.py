"""A pod as infra/kubernetes describes it: it enrols, runs one job as a process, and leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.cloud.cloudformation import INFRA
from support.http.issuer import ACCOUNT, Issuer, issuing
from support.workers.http_bed import http_bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workers.http_bed import HttpBed

# Walks from the job up to the worker; a pod has only these processes.
LOOKS = """
import pathlib, sys
process, worker = "self", sys.argv[1]
while True:
    place = pathlib.Path("/proc") / process
    try:
        print(place.joinpath("environ").read_bytes().replace(b"\\0", b"\\n").decode())
    except PermissionError:
        print("closed")
    status = place.joinpath("status").read_text()
    if f"\\nPid:\\t{worker}\\n" in status:
        break
    process = status.partition("\\nPPid:\\t")[2].partition("\\n")[0]
print("looked at all")
"""


@pytest.fixture
def cluster() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def made(tmp_path: Path, database_url: str, cluster: Issuer) -> Iterator[HttpBed]:
    with http_bed(tmp_path, database_url, enrol_issuer=cluster.url, enrol_accounts=ACCOUNT) as made:
        yield made


class Pod:
    """The containers of a pool's pod, as processes with their variables and no others."""

    def __init__(self, made: HttpBed, folder: Path) -> None:
        pool = INFRA / "kubernetes" / "pools" / "base" / "pool.yaml"
        job = yaml.safe_load(pool.read_text(encoding="utf-8"))
        self._spec: dict[str, Any] = job["spec"]["jobTargetRef"]["template"]["spec"]
        self._made, self._folder = made, folder
        self.identity = folder / "identity"

    def enrol(self) -> subprocess.CompletedProcess[str]:
        (container,) = self._spec["initContainers"]
        program = [sys.executable, *container["command"][1:]]
        return subprocess.run(
            program,
            env=self._environment(container),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def worker(self, log: Path) -> subprocess.Popen[bytes]:
        (container,) = self._spec["containers"]
        program = [sys.executable, "-m", "forge_worker.main"]
        with log.open("wb") as said:
            environment = self._environment(container)
            return subprocess.Popen(program, env=environment, stdout=said, stderr=said)

    def _environment(self, container: dict[str, Any]) -> dict[str, str]:
        here = {
            "FORGE_URL": self._made.servers[0].url,
            "FORGE_TOKEN_FILE": str(self._folder / "token"),
            "FORGE_IDENTITY_FILE": str(self.identity),
            "FORGE_WORKER_DIR": str(self._folder / "work"),
        }
        given = {one["name"]: here.get(one["name"], one.get("value")) for one in container["env"]}
        return {"PATH": os.environ["PATH"], "HOME": str(self._folder), **given}


@pytest.fixture
def pod(made: HttpBed, tmp_path: Path) -> Pod:
    folder = tmp_path / "pod"
    folder.mkdir()
    return Pod(made, folder)


def test_a_pods_job_finds_no_way_to_the_queues_database_or_store(
    made: HttpBed, pod: Pod, cluster: Issuer, tmp_path: Path
) -> None:
    identity = cluster.pod_token("forge-worker-cuda-x7f")
    pod.identity.write_text(identity, encoding="utf-8")
    ended = pod.enrol()
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    token = tmp_path / "pod" / "token"
    assert token.stat().st_mode & 0o777 == 0o600
    said = tmp_path / "pod.log"
    worker = pod.worker(said)
    job = made.script(LOOKS, str(worker.pid))
    try:
        made.succeeds(job)
        assert worker.wait(120) == 0, said.read_text()
    finally:
        worker.kill()
        worker.wait()
    found = made.log(job).decode()
    assert "looked at all" in found
    secrets = (made.database.url, made.store.url, identity)
    for hidden in ("FORGE_DATABASE_URL", "FORGE_STORE_URL", *secrets):
        assert hidden not in found
    (row,) = made.registry.workers()
    assert (row["name"], row["kind"]) == ("forge-worker-cuda-x7f", "ephemeral")


def test_a_pod_of_another_service_account_says_why_it_does_not_start(
    made: HttpBed, pod: Pod, cluster: Issuer, tmp_path: Path
) -> None:
    pod.identity.write_text(cluster.pod_token(account="forge:default"), encoding="utf-8")
    ended = pod.enrol()
    assert ended.returncode == 1
    assert "pods of forge:default may not enrol here" in ended.stderr
    pod.identity.write_text(cluster.pod_token(aud="https://a.example"), encoding="utf-8")
    ended = pod.enrol()
    assert ended.returncode == 1
    assert "FORGE_ENROL_AUDIENCE" in ended.stderr
    assert not (tmp_path / "pod" / "token").exists()
    assert made.registry.workers() == []


def test_a_pod_without_its_identity_says_which_file_is_missing(pod: Pod) -> None:
    ended = pod.enrol()
    assert ended.returncode == 1
    assert str(pod.identity) in ended.stderr
    assert "Traceback" not in ended.stderr
