"""`forge-server init`: from a bare machine to a service, and again without a change."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_client import Client
from forge_functions import init
from forge_functions.init import answers, service
from support.client.command import command
from support.ports import free_port
from support.queue.holder import Holder
from support.queue.live import live
from support.waiting import eventually
from support.warm.process import Warm

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = str(Path(sys.executable).with_name("forge-server"))
SOME = ("--database-url", "postgresql://ann@127.0.0.1:1/none")
MADE = ("authority.pem", "authority.key", "server.pem", "server.key", "server.env", "sweeper.env")

# Changes a setting, has both run with it, and fails then.
LATE = """
import sys
from forge_functions import init
from forge_functions.init import answers, service

given = answers.answers(["--dir", sys.argv[1]])
with service.undone(given, init.say):
    init._write(given.file, {**answers.read(given.file), "FORGE_PORT": sys.argv[2]})
    service.in_background(given, changed=True)
    service.await_answer(given)
    raise service.NotUp("it was told to")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for an installation, whose processes end with the test."""
    (tmp_path / "forge").mkdir()
    # Two sweepers on one machine cannot have one port.
    (tmp_path / "forge" / "sweeper.env").write_text("FORGE_HEALTH_PORT=0\n")
    yield tmp_path / "forge"
    for file in (tmp_path / "forge" / "state").glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text().split()[0]), signal.SIGKILL)


def run(
    folder: Path, *words: str, verb: str = "init", **env: str
) -> subprocess.CompletedProcess[str]:
    with Warm(
        "forge_functions.program",
        [PROGRAM, verb, "--dir", str(folder), *words],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [*(folder / name for name in MADE), *(folder / "state").glob("*.pid")]
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def works(folder: Path, url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setenv("FORGE_TLS_CA", str(folder / "authority.pem"))
    with Client(url=url, api_key=key) as client:
        return client.jobs() == []


def test_a_machine_becomes_a_server_and_stays_what_it_is(
    folder: Path, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = str(free_port())
    words = ("--name", "127.0.0.1", "--host", "127.0.0.1", "--port", port)
    first = run(folder, "--database-url", empty_database_url, *words)
    assert first.returncode == 0, first.stderr
    key, url = first.stdout.strip(), f"https://127.0.0.1:{port}"
    assert works(folder, url, key, monkeypatch)
    for name in ("authority.key", "server.env", "sweeper.env"):
        assert (folder / name).stat().st_mode & 0o077 == 0

    before = state(folder)
    again = run(folder)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    assert state(folder) == before
    with socket.create_server(("127.0.0.1", 0)) as taken:
        other = taken.getsockname()[1]
        refused = run(folder, "--port", str(other))
    assert f"forge-server cannot listen on port {other}" in refused.stderr
    assert (refused.returncode, state(folder)) == (1, before), refused.stderr

    refused = run(folder, "--host", "192.0.2.7")
    assert "of 192.0.2.7: Cannot assign requested address" in refused.stderr
    assert (refused.returncode, state(folder)) == (1, before), refused.stderr
    # Another lab cannot have its database by mistake.
    lab = [*words[:-1], str(other), "--database-url", empty_database_url]
    (folder / "lab").mkdir()
    refused = run(folder / "lab", *lab)
    assert f"keeps its objects in file://{folder}/state/store, not in" in refused.stderr
    assert (refused.returncode, (folder / "lab" / "server.env").exists()) == (1, False)
    failed = subprocess.run(
        [sys.executable, "-c", LATE, folder, str(other)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "put back what was there: forge-server and forge-sweeper run as before" in failed.stderr
    service.await_answer(answers.answers(["--dir", str(folder)]))
    assert {name for name, (text, _) in state(folder).items() if text != before[name][0]} == {
        "forge-server.pid",
        "forge-sweeper.pid",
    }
    before = state(folder)

    # As after an upgrade: what runs is restarted, and nothing else changes.
    (folder / "version").write_text("0.1.0")
    assert run(folder).stderr.count("started forge-") == 2
    upgraded = state(folder)
    running = {"forge-server.pid", "forge-sweeper.pid"}
    assert {name for name in upgraded if upgraded[name] != before[name]} == running
    before = upgraded

    _is_cared_for(folder)
    before = state(folder)
    named = run(folder, "--name", "127.0.0.1", "--name", "forge.lab")
    assert named.returncode == 0, named.stderr
    after = state(folder)
    assert {name for name in after if after[name] != before[name]} == {"server.pem", "server.key"}
    assert works(folder, url, key, monkeypatch)

    before = state(folder)
    with live(empty_database_url) as queue:
        queue.submit()
        Holder(queue, f"file://{folder}/state/store").write(b"one\n")
    elsewhere = run(folder, "--store-url", f"file://{folder}/elsewhere")
    assert "copy them there first" in elsewhere.stderr
    assert (elsewhere.returncode, state(folder)) == (1, before), elsewhere.stderr


def _verb(verb: str, folder: Path, *words: str) -> tuple[int, str]:
    """Return how a verb of what was made ended, and all that it printed."""
    done = run(folder, *words, verb=verb, FORGE_URL="https://other.lab")
    return done.returncode, done.stdout + done.stderr


def _is_cared_for(folder: Path) -> None:
    """Try what the week of a lab needs: a backup, another admin's key, stop and start."""
    backups = str(folder / "backups")
    assert _verb("direct", folder, "backup", backups)[0] == 0
    assert list(Path(backups).glob("queue-*.dump"))
    made = _verb("direct", folder, "key", "create", "--owner", "admin", "--role", "admin")
    assert (made[0], "fgk_" in made[1]) == (0, True), made
    assert "forge-server runs, process" in _verb("status", folder)[1]
    assert "stopped forge-server and forge-sweeper" in _verb("stop", folder)[1]
    assert "neither the server nor the sweeper ran" in _verb("stop", folder)[1]
    code, told = _verb("status", folder)
    assert (code, f"forge-server start --dir {folder}" in told) == (1, True), told
    code, told = _verb("start", folder)
    assert (code, told.count("started forge-")) == (0, 2), told
    code, told = _verb("stop", folder / "none")
    assert (code, "there is no server in" in told) == (2, True), told


def test_lines_for_people_and_machines_vouch_for_its_authority(
    folder: Path, empty_database_url: str, tmp_path: Path
) -> None:
    port = str(free_port())
    words = ("--name", "127.0.0.1", "--host", "127.0.0.1", "--port", port)
    key = run(folder, "--database-url", empty_database_url, *words).stdout.strip()
    url, trusted = f"https://127.0.0.1:{port}", str(folder / "authority.pem")
    for home in ("admin", "theirs", "others"):
        (tmp_path / home).mkdir()
    admin = command(tmp_path / "admin", FORGE_URL=url, FORGE_API_KEY=key, FORGE_TLS_CA=trusted)
    line = shlex.split(admin("invite", "ann").stdout)
    own = line[line.index("--authority") + 1]
    assert f"{trusted} is it" in admin("dashboard").stderr
    with Client(url=url, api_key=key, tls_ca=trusted) as client:
        assert client.dashboard().startswith(f"{url}/")
    shown = ["openssl", "x509", "-in", trusted, "-noout", "-fingerprint", "-sha256"]
    printed = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert printed.strip().rpartition("=")[2].replace(":", "").lower() == own

    others = command(tmp_path / "others")
    refused = others(*[word.replace(own, "0" * 64) for word in line[1:]])
    assert (refused.returncode, "another authority" in refused.stderr) == (1, True), refused.stderr
    assert "not trusted" in others("ps", FORGE_URL=url, FORGE_API_KEY=key).stderr
    # The refused line was not used up: its text has not left the machine.
    theirs = command(tmp_path / "theirs")
    assert "as ann (submitter)" in theirs(*line[1:]).stderr
    assert theirs("ps", FORGE_URL=url).returncode == 0
    elsewhere = url.replace("127.0.0.1", "localhost")
    assert "not trusted" in theirs("ps", FORGE_URL=elsewhere, FORGE_API_KEY=key).stderr

    join = admin("worker", "add", "vm-1").stdout
    digest = re.findall(r'hexdigest\(\)=="([0-9a-f]{64})"', join)
    assert digest[0] == own
    for wrong, told in zip(digest, ("another authority", "another version"), strict=True):
        pasted = subprocess.run(
            ["sh", "-c", join.replace(wrong, "0" * 64)], capture_output=True, text=True, check=False
        )
        assert (pasted.returncode, told in pasted.stderr) == (1, True), pasted.stderr


def _ended(pid: Path, program: str) -> bool:
    return service.running(pid, program) is None


def _taken(port: int) -> socket.socket | None:
    with suppress(OSError):
        return socket.create_server(("127.0.0.1", port))
    return None


def test_a_server_that_died_is_started_again(
    folder: Path, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = str(free_port())
    words = ("--name", "127.0.0.1", "--host", "127.0.0.1", "--port", port)
    key = run(folder, "--database-url", empty_database_url, *words).stdout.strip()
    for program in service.PROGRAMS:
        pid = folder / "state" / f"{program}.pid"
        number, begun = pid.read_text().split()
        # After a reboot, another lab's server may have the number.
        (folder / "other.pid").write_text(f"{number} {int(begun) + 1}\n")
        assert service.running(folder / "other.pid", program) is None
        assert service.running(pid, program) == int(number)
        os.kill(int(number), signal.SIGKILL)
        eventually(partial(_ended, pid, program))
    # Another server answers there: it is not the one that was to be started. A process that was
    # killed has lost its name before it gives back its port.
    other = eventually(lambda: _taken(int(port)))
    assert other is not None
    with other:
        refused = run(folder)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"forge-server cannot listen on port {port}" in refused.stderr
    # Next to another sweeper, which has the port that this one is to have.
    settings = (folder / "sweeper.env").read_text()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = f"FORGE_HEALTH_PORT={taken.getsockname()[1]}"
        (folder / "sweeper.env").write_text(settings.replace("FORGE_HEALTH_PORT=0", wanted))
        refused = run(folder)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"forge-sweeper cannot listen on port {taken.getsockname()[1]}" in refused.stderr
        assert "Address already in use" in refused.stderr
        assert str(folder / "sweeper.env") in refused.stderr
    assert "started forge-sweeper" in run(folder).stderr
    assert works(folder, f"https://127.0.0.1:{port}", key, monkeypatch)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "which database? Give --database-url"),
        (
            ["--database-url", "postgresql://ann@127.0.0.1:1/none"],
            "127.0.0.1:1/none does not answer",
        ),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
        (["--port", "99999"], "99999 is not a port: write a number from 1 to 65535"),
        (["--tls-cert", "none.pem"], "there is no file none.pem"),
        (["--database-url", "mysql://x"], "--database-url: it does not begin with postgresql://"),
        ([*SOME, "--store-url", "ftp://x"], "--store-url: "),
        ([*SOME, "--store-url", "file:///dev/null/x"], "folder /dev/null/x cannot be written to"),
        (["--name", "bad name"], "'bad name' is neither a host's name nor an address"),
        ([*SOME, "--tls-cert", __file__], "no usable certificate with its unencrypted key"),
        (["--tls-key", __file__], "give --tls-cert with its --tls-key"),
        ([*SOME, "--host", "192.0.2.7"], " of 192.0.2.7: Cannot assign requested address"),
    ],
)
def test_what_is_missing_or_wrong_is_told_before_anything_runs(
    folder: Path, words: list[str], told: str
) -> None:
    port = str(free_port())
    done = run(folder, "--name", "forge.lab", "--port", port, *words)
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "server.env").exists()


def test_systemd_gets_units_with_our_paths_and_restarts_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []
    units, backups = tmp_path / "units", tmp_path / "backups"
    units.mkdir()
    monkeypatch.setattr(service, "UNITS", units)
    monkeypatch.setattr(service, "BACKUPS", backups)
    monkeypatch.setattr(service, "_systemctl", lambda *words: calls.append(words))
    monkeypatch.setattr(service, "_give", lambda *_: None)
    monkeypatch.setattr(service, "_is_up", lambda *_: True)
    service.with_systemd(changed=True)
    names = [*service.FILES, *service.BACKUP]
    assert sorted(unit.name for unit in units.iterdir()) == sorted(names)
    text = (units / "forge-server.service").read_text()
    assert f"ExecStart={sys.prefix}/bin/forge-server\n" in text
    started = (*service.FILES, "forge-backup.timer")
    assert calls == [
        ("daemon-reload",),
        ("enable", "--quiet", *started),
        ("restart", *started),
    ]
    calls.clear()
    assert service.with_systemd(changed=False) == []
    assert calls == [("enable", "--quiet", *started), ("start", *started)]


def test_a_proxy_that_speaks_tls_is_remembered(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "--name", "a", "--database-url", "postgresql://x/y"]
    without = answers.answers([*words, "--no-tls"])
    assert (without.tls, without.url) == (False, "http://a:8900")
    (tmp_path / "server.env").write_text(
        "".join(
            f"{name}={value}\n" for name, value in init._settings(without)["forge-server"].items()
        )
    )
    again = answers.answers(["--dir", str(tmp_path)])
    assert (again.tls, again.url, again.names) == (False, "http://a:8900", ("a",))


def test_a_second_sweeper_gets_a_port_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--dir", str(tmp_path), "--name", "a", "--database-url", "postgresql://x/y"]
    given = answers.answers([*words, "--no-tls"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = str(taken.getsockname()[1])
        monkeypatch.setattr(service, "HEALTH_PORT", usual)
        assert init._settings(given)["forge-sweeper"]["FORGE_HEALTH_PORT"] != usual
    assert "FORGE_HEALTH_PORT" not in init._settings(given)["forge-sweeper"]
    # The port that the server is to have is not free either.
    monkeypatch.setattr(service, "HEALTH_PORT", "8900")
    assert init._settings(given)["forge-sweeper"]["FORGE_HEALTH_PORT"] != "8900"
