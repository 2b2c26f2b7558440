"""infra/proxy and infra/monitoring, taken by the real programs where they are installed."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import yaml
from forge_functions.middleware.requests import OBJECTS
from forge_functions.server import KEEP_ALIVE_S
from support.answering import answering
from support.cloud.cloudformation import INFRA
from support.http import nginx
from support.http.certificates import certificates
from support.ports import free_port
from support.services import require
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MONITORING = INFRA / "monitoring"
# What lets each alert fire: a metric, and its values minute by minute.
FIRING = {
    "ForgeServerDown": ('up{job="forge-server",instance="a"}', "0x30"),
    "ForgeDatabaseDown": ("forge_database_up", "0x30"),
    "ForgeSweeperLate": ("forge_sweeper_last_tick_age_seconds", "200x30"),
    "ForgeOverdue": ("forge_overdue_seconds", "400x30"),
    "ForgeRowsSetAside": ("forge_set_aside_rows", "1x30"),
    "ForgeServerErrors": ('forge_http_requests_total{status="500"}', "0+60x30"),
    "ForgeLeasesExpiring": ("forge_leases_expiring", "20x30"),
    "ForgeJobsWait": ('forge_oldest_ready_seconds{queue="default"}', "30000x30"),
}
MORE = {"ForgeLeasesExpiring": [("forge_leases", "30x30")]}
QUIET = [
    ('up{job="forge-server",instance="a"}', "1x30"),
    ("forge_database_up", "1x30"),
    ("forge_sweeper_last_tick_age_seconds", "9x30"),
    ("forge_overdue_seconds", "0x30"),
    ("forge_set_aside_rows", "0x30"),
    ('forge_http_requests_total{status="200"}', "0+60x30"),
    ('forge_http_requests_total{status="500"}', "0+1x30"),
    # Few leases may well expire together.
    ("forge_leases_expiring", "2x30"),
    ("forge_leases", "3x30"),
    ('forge_oldest_ready_seconds{queue="default"}', "60x30"),
]


def program(name: str) -> str:
    """Return a program's path."""
    found = nginx.program(name)
    require(found, f"{name} (.ci/run takes it from Debian's package)")
    assert found is not None
    return found


def case(series: list[tuple[str, str]], alert: str, *, fires: bool) -> dict[str, Any]:
    given = [{"series": name, "values": values} for name, values in series]
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    seen = [{"labels": "{}", "value": int(fires)}]
    test = {"expr": expression, "eval_time": "30m", "exp_samples": seen}
    return {"interval": "1m", "input_series": given, "promql_expr_test": [test]}


def test_prometheus_takes_the_rules_and_each_fires_when_it_should(tmp_path: Path) -> None:
    promtool = program("promtool")
    shutil.copytree(MONITORING, tmp_path / "monitoring")
    config = tmp_path / "monitoring" / "prometheus.yml"
    config.write_text(config.read_text().replace("/run/secrets/forge_metrics_key", str(config)))
    subprocess.run([promtool, "check", "config", config], check=True, capture_output=True)
    rules = yaml.safe_load((MONITORING / "rules.yml").read_text(encoding="utf-8"))
    assert {rule["alert"] for rule in rules["groups"][0]["rules"]} == set(FIRING)
    tests = [
        *(case([one, *MORE.get(name, [])], name, fires=True) for name, one in FIRING.items()),
        *(case(QUIET, name, fires=False) for name in FIRING),
    ]
    written = {"rule_files": [str(MONITORING / "rules.yml")], "tests": tests}
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump(written), encoding="utf-8")
    ended = subprocess.run(
        [promtool, "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


class Echo(BaseHTTPRequestHandler):
    """Answers with what it heard of the caller."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        said = f"{self.headers['X-Forwarded-For']} {self.headers['X-Forwarded-Proto']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its base's name
        """Say nothing."""


@contextmanager
def echoing(port: int) -> Iterator[None]:
    """Answer on a port until the block ends."""
    with answering(ThreadingHTTPServer(("127.0.0.1", port), Echo)):
        yield


@contextmanager
def proxied(folder: Path, *ports: int) -> Iterator[httpx.Client]:
    """Run nginx with our configuration in front of some ports, and yield a client of it."""
    found, made, port = program("nginx"), certificates(folder), free_port()
    servers = [f"127.0.0.1:{one}" for one in ports]
    process = subprocess.Popen(nginx.command(found, folder, port, made, servers))
    try:
        eventually(lambda: _accepts(port) or process.poll() is not None)
        trusted = ssl.create_default_context(cafile=made.authority)
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusted) as user:
            yield user
    finally:
        process.terminate()
        process.wait(60)


def _accepts(port: int) -> bool:
    with socket.socket() as knocking:
        return knocking.connect_ex(("127.0.0.1", port)) == 0


def test_the_proxy_speaks_tls_says_who_called_and_limits_bodies(tmp_path: Path) -> None:
    large, port = bytes(3 << 20), free_port()
    with echoing(port), proxied(tmp_path, port) as user:
        answer = user.get("/api/v1/me", headers={"X-Forwarded-For": "10.0.0.1"})
        assert answer.text == "127.0.0.1 https"
        assert "max-age" in answer.headers["Strict-Transport-Security"]
        assert user.get("/metrics").status_code == 404
        assert user.post("/api/v1/queue/submit", content=large).status_code == 413
        assert user.post(f"{OBJECTS}key", content=large).status_code == 200


def test_servers_that_were_all_away_are_asked_as_soon_as_one_is_back(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    with proxied(tmp_path, *ports) as user:
        for _ in range(4):
            assert user.get("/api/v1/me").status_code == 502
        with echoing(ports[1]):
            for _ in range(4):
                assert user.get("/api/v1/me").is_success


def test_the_proxy_closes_idle_connections_to_the_server_first() -> None:
    said = (INFRA / "proxy" / "nginx.conf").read_text(encoding="utf-8")
    (idle_s,) = re.findall(r"\n {8}keepalive_timeout (\d+)s;", said)
    assert int(idle_s) < KEEP_ALIVE_S
