"""`forge-server` as an operator starts and stops it."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from forge_functions.server import is_loopback
from forge_functions.settings import FunctionsSettings
from forge_schema.access.worker_tokens import WorkerTokens
from support.http.certificates import certificates
from support.warm.process import Warm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.queue.rig import Rig

SECRET = "s" * 40
SERVER = "forge_functions.server"
LEAVES_S = 120


@pytest.fixture
def environment(rig: Rig, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "FORGE_DATABASE_URL": rig.url,
        "FORGE_STORE_URL": (tmp_path / "store").as_uri(),
        "FORGE_SERVER_SECRET": SECRET,
    }


@contextmanager
def started(environment: dict[str, str], *flags: str) -> Iterator[subprocess.Popen[str]]:
    with run(environment, "--port", "0", *flags) as process:
        try:
            yield process
        finally:
            process.kill()


def run(environment: dict[str, str], *flags: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return Warm(SERVER, [SERVER, *flags], env=environment, stdout=pipe, stderr=pipe, text=True)


def told(process: subprocess.Popen[str]) -> str:
    """Return the URL that the server tells."""
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said.startswith("listening on "), process.communicate(timeout=LEAVES_S)
    return said.removeprefix("listening on ").strip()


def failed(environment: dict[str, str], *flags: str) -> tuple[int, str]:
    with run(environment, *flags) as process:
        _, said = process.communicate(timeout=LEAVES_S)
    assert "Traceback" not in said
    return process.returncode, said


def test_it_tells_its_port_and_leaves_in_good_order(environment: dict[str, str]) -> None:
    with started(environment) as process:
        url = told(process)
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/health", timeout=60).json()["status"] == "ok"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LEAVES_S)
    assert process.returncode == 0, log
    assert '"path": "/health", "status": 200' in log
    assert "tls_missing" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_streams_end_when_it_leaves(
    rig: Rig, environment: dict[str, str], number: signal.Signals
) -> None:
    token = WorkerTokens(rig.database, actor="user:root").create("w")[1]
    headers = {"X-Worker-Token": token, "Accept": "text/event-stream"}
    with started(environment) as process:
        url = told(process)
        with httpx.stream(
            "GET", f"{url}/api/v1/workers/stream", headers=headers, timeout=60
        ) as got:
            pieces = got.iter_raw()
            assert next(pieces).startswith(b": ")
            process.send_signal(number)
            for _ in pieces:
                pass
        _, log = process.communicate(timeout=LEAVES_S)
    assert process.returncode == 0, log
    assert "Traceback" not in log


def test_it_serves_tls(environment: dict[str, str], tmp_path: Path) -> None:
    files = certificates(tmp_path)
    flags = ("--tls-cert", str(files.server), "--tls-key", str(files.key))
    trusting = ssl.create_default_context(cafile=files.authority)
    with started(environment, *flags) as process:
        url = told(process)
        assert url.startswith("https://")
        assert httpx.get(f"{url}/health", verify=trusting, timeout=60).is_success


def test_it_warns_where_tokens_cross_a_network_in_the_clear(environment: dict[str, str]) -> None:
    with started(environment, "--host", "0.0.0.0") as process:  # noqa: S104  what is warned of
        told(process)
        process.terminate()
        _, log = process.communicate(timeout=LEAVES_S)
    assert "tls_missing" in log


def test_loopback_is_known_by_its_addresses() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "forge.example"))  # noqa: S104  as above


def test_without_a_database_it_does_not_start(environment: dict[str, str]) -> None:
    away = {**environment, "FORGE_DATABASE_URL": "postgresql://ann:hunter2@127.0.0.1:1/forge"}
    code, said = failed(away)
    assert (code, "does not answer" in said, "hunter2" in said) == (1, True, False)


def test_without_tables_it_does_not_start(
    environment: dict[str, str], empty_database_url: str
) -> None:
    code, said = failed({**environment, "FORGE_DATABASE_URL": empty_database_url})
    assert (code, "forge db upgrade" in said) == (1, True)


def test_an_invalid_store_url_is_reported(environment: dict[str, str]) -> None:
    code, said = failed({**environment, "FORGE_STORE_URL": "ftp://a.example"})
    assert (code, "ftp" in said) == (1, True)


def test_a_port_that_is_taken_is_said(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = failed(environment, "--port", str(taken.getsockname()[1]))
    assert (code, "in use" in said) == (1, True)


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_an_invalid_certificate_is_reported(
    environment: dict[str, str], tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "cert.pem").write_bytes(content)
    code, said = failed(environment, "--tls-cert", str(tmp_path / "cert.pem"))
    assert (code, said.startswith("forge-server: ")) == (1, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FORGE_SERVER_SECRET", "short"),
        ("FORGE_SERVER_SECRET", None),
        ("FORGE_DATABASE_URL", None),
        ("FORGE_PORT", "-1"),
        ("FORGE_TLS_KEY", "key.pem"),
        ("FORGE_OIDC_ROLES", '{"a": "root"}'),
        ("FORGE_URL_LASTS_S", "901"),
    ],
)
def test_settings_that_are_wrong_are_named(
    environment: dict[str, str], name: str, value: str | None
) -> None:
    changed = {key: said for key, said in environment.items() if key != name}
    code, said = failed(changed if value is None else {**changed, name: value})
    assert code == 2
    assert name.removeprefix("FORGE_").lower().replace("_", "-") in said.replace("_", "-")
    assert "short" not in said


def test_every_flag_is_a_variable_too() -> None:
    assert FunctionsSettings.model_config["env_prefix"] == "FORGE_"
    assert {"host", "port", "tls_cert", "tls_key"} <= set(FunctionsSettings.model_fields)
