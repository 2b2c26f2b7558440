"""compose.yaml and the image: whole, without secrets, and with settings that the programs know."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from forge_functions.settings import FunctionsSettings as ServerSettings
from forge_schema.sweeper.main import ProcessSettings
from forge_worker.settings.settings import WorkerSettings
from pydantic_settings import BaseSettings
from support.cloud.cloudformation import INFRA
from support.services import require

ROOT = INFRA.parent
COMPOSE = INFRA / "compose.yaml"
SETTINGS: dict[str, type[BaseSettings]] = {
    "forge-server": ServerSettings,
    "forge-sweeper": ProcessSettings,
    "forge-worker": WorkerSettings,
}
# What Docker gives to networks that ask for no addresses of their own.
POOLS = ("172.16.0.0/12", "192.168.0.0/16")
# Read from files that are named like the variables, in lower case.
BY_FILE = ("forge_database_url", "forge_server_secret", "forge_token_file")


@pytest.fixture
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return loaded


def ours(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the services that run our own image."""
    return {n: s for n, s in compose["services"].items() if s["image"].startswith("forge-")}


def compose_command() -> list[str] | None:
    """Return the command of Compose 2 or later: the engine's plugin, or a program of its own."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is not None:
            asked = [*command, "version", "--short"]
            told = subprocess.run(asked, capture_output=True, text=True, check=False)
            if told.returncode == 0 and not told.stdout.startswith("1."):
                return command
    return None


def test_compose_takes_it() -> None:
    command = compose_command()
    require(command, "docker compose 2 or later (.ci/run takes it)")
    assert command is not None
    profiles = ["--profile", "worker", "--profile", "monitoring"]
    words = [*command, "-f", str(COMPOSE), *profiles, "config", "--quiet"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_whatever_a_service_names_is_there(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert set(service.get("secrets", [])) <= set(compose["secrets"]), name
        assert set(service["networks"]) <= set(compose["networks"]), name
        assert set(service.get("depends_on", {})) <= set(compose["services"]), name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (INFRA / source).exists(), name


def test_a_service_starts_once_what_it_needs_is_healthy(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for other, given in service.get("depends_on", {}).items():
            needed = compose["services"][other]
            if given["condition"] == "service_healthy":
                assert "healthcheck" in needed, f"{name} waits for {other} for ever"
            else:
                assert given["condition"] == "service_completed_successfully"
                assert needed["restart"] == "on-failure"


def test_our_services_run_our_programs_with_settings_that_they_know(
    compose: dict[str, Any],
) -> None:
    for name, service in ours(compose).items():
        program = service["command"][0]
        assert Path(sys.executable).with_name(program).exists(), name
        if program == "forge":
            continue
        known = {f"FORGE_{field.upper()}" for field in SETTINGS[program].model_fields}
        given = set(service.get("environment", {}))
        by_file = {s.upper() for s in service["secrets"] if s.startswith("forge_")}
        # The program that serves reads this one itself.
        assert given | by_file <= known | {"FORWARDED_ALLOW_IPS"}, name


def test_secrets_come_by_file_alone(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            secret = "PASSWORD" in variable or variable.lower() in BY_FILE
            assert not secret or value.startswith("/run/secrets/"), f"{name}: {variable}"
    assert {given["file"] for given in compose["secrets"].values()} == {
        f"secrets/{name}" for name in compose["secrets"]
    }
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", "infra/secrets/worker_token"], cwd=ROOT, check=False
    )
    assert ignored.returncode == 0, "a secret could be committed"


def test_our_services_may_do_little(compose: dict[str, Any]) -> None:
    for name, service in ours(compose).items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert service["init"] is True, name
        assert "privileged" not in service, name
        assert not [v for v in service.get("volumes", []) if "docker.sock" in v], name
    # A job is untrusted code.
    assert compose["services"]["worker"]["networks"] == ["outside"]
    assert compose["networks"]["inside"] == {"internal": True}


def test_only_the_proxy_is_reached_from_other_machines(compose: dict[str, Any]) -> None:
    ports = {name: s["ports"] for name, s in compose["services"].items() if "ports" in s}
    assert ports.pop("proxy") == ["443:8443"]
    for name, opened in ports.items():
        assert all(port.startswith("127.0.0.1:") for port in opened), name
    # Whoever is on this network is believed about who called.
    front = {name for name, s in compose["services"].items() if "front" in s["networks"]}
    assert front == {"proxy", "server"}
    (config,) = compose["networks"]["front"]["ipam"]["config"]
    given = compose["services"]["server"]["environment"]
    assert given["FORWARDED_ALLOW_IPS"] == config["subnet"]
    subnet = ip_network(config["subnet"].partition(":-")[2].rstrip("}"))
    assert not any(subnet.overlaps(ip_network(pool)) for pool in POOLS)


def test_others_services_may_do_little_too(compose: dict[str, Any]) -> None:
    others = set(compose["services"]) - set(ours(compose)) - {"postgres"}
    assert others == {"proxy", "prometheus", "alertmanager", "grafana"}
    for name in others:
        service = compose["services"][name]
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_entrypoint_is_a_shell_script(shell: str) -> None:
    script = INFRA / "docker" / "entrypoint.sh"
    subprocess.run([shell, "-n", script], check=True)
    assert os.access(script, os.X_OK)


def test_the_entrypoint_makes_variables_of_files(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    # As `echo` writes it, and with text that a shell could interpret.
    (secrets / "forge_server_secret").write_text("x $(id) `id` \"'\n", encoding="utf-8")
    (secrets / "postgres_password").write_text("pw", encoding="utf-8")
    ended = subprocess.run(
        [INFRA / "docker" / "entrypoint.sh", "env"],
        env={"PATH": os.environ["PATH"], "FORGE_SECRETS": str(secrets)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = ended.stdout.splitlines()
    assert "FORGE_SERVER_SECRET=x $(id) `id` \"'" in said
    assert not [line for line in said if "pw" in line.split("=")]
