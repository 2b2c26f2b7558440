"""What `forge-server init` has to know, from its flags, an earlier run, or who runs it."""

import argparse
import os
import re
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from forge_functions.init.authority import CHAIN, named

ETC, STATE = Path("/etc/forge"), Path("/var/lib/forge-server")
SYSTEMD = Path("/run/systemd/system")
LAST_PORT, USAGE = 65535, 2
HOST = re.compile(r"(?=.{1,253}\Z)\w(?:[\w-]{0,61}\w)?(?:\.\w(?:[\w-]{0,61}\w)?)*", re.ASCII)
VERBS = {
    "start": "Start the server and the sweeper, unless they run.",
    "stop": "Stop the server and the sweeper. Workers finish what they run, and wait.",
    "status": "Say whether the server and the sweeper run.",
    "direct": "Run a command of `forge` on the database and the store of this server, as `backup`,"
    " `db move` and, if an admin's key is lost, `key create` need them.",
}
POSTGRES = """\
with Postgres on this machine, its user postgres makes one:
    createuser --pwprompt forge && createdb --owner forge forge
    --database-url postgresql://forge:PASSWORD@127.0.0.1/forge"""


@dataclass(frozen=True)
class Answers:
    """Where the service belongs, and the settings that it gets.

    `settings` has the FORGE_ variables without their secret; `names` are how callers name the
    machine. Without `tls`, a proxy in front of the server has the certificate.
    """

    etc: Path
    state: Path
    systemd: bool
    names: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    tls: bool = True

    @property
    def file(self) -> Path:
        return self.etc / "server.env"

    @property
    def flag(self) -> str:
        """What the other verbs need to find it, in a line for a shell."""
        return "" if self.etc == ETC else f" --dir {shlex.quote(str(self.etc))}"

    @property
    def url(self) -> str:
        """How callers reach it."""
        return self.settings["FORGE_PUBLIC_URL"]


def answers(words: Sequence[str]) -> Answers:
    """Return the answers; ask for what is missing where there is a terminal.

    Raises:
        SystemExit: a flag is unknown, or something is missing and nobody can be asked.
    """
    parser = _parser()
    given = parser.parse_args(words)
    if given.tls_cert if given.no_tls else given.tls_key and not given.tls_cert:
        parser.error("give --tls-cert with its --tls-key, or --no-tls, or none of them")
    etc = given.dir.resolve() if given.dir else ETC
    state = etc / "state" if given.dir else STATE
    if given.dir is None and os.geteuid() != 0:
        _refuse("forge-server: run it as root, or name a folder of your own with --dir")
    kept = read(etc / "server.env")
    names = tuple(given.name or _former_names(etc, kept) or [_asked_name()])
    database = given.database_url or kept.get("FORGE_DATABASE_URL") or _ask("database URL", "")
    if not database:
        _refuse(f"forge-server init: which database? Give --database-url; {POSTGRES}")
    store = f"file://{state / 'store'}"
    store = given.store_url or kept.get("FORGE_STORE_URL") or _ask("store", store) or store
    settings = {
        "FORGE_DATABASE_URL": database,
        "FORGE_STORE_URL": store,
        "FORGE_HOST": given.host or kept.get("FORGE_HOST") or "0.0.0.0",  # noqa: S104 - a server
        "FORGE_PORT": str(given.port or kept.get("FORGE_PORT") or 8900),
    }
    tls = bool(given.tls_cert) or not (
        given.no_tls or kept.get("FORGE_PUBLIC_URL", "").startswith("http://")
    )
    scheme = "https" if tls else "http"
    host = f"[{names[0]}]" if ":" in names[0] else names[0]
    settings["FORGE_PUBLIC_URL"] = f"{scheme}://{host}:{settings['FORGE_PORT']}"
    if given.tls_cert:
        settings["FORGE_TLS_CERT"] = str(given.tls_cert.absolute())
        settings["FORGE_TLS_KEY"] = str((given.tls_key or given.tls_cert).absolute())
    systemd = given.dir is None and SYSTEMD.is_dir()
    return Answers(etc, state, systemd, names, settings, tls=tls)


def made(verb: str, words: Sequence[str]) -> tuple[Answers, list[str]]:
    """Return what an `init` has made, for another verb, and the command that follows it.

    Raises:
        SystemExit: a word is unknown, or no server is there.
    """
    about = VERBS[verb]
    parser = argparse.ArgumentParser(prog=f"forge-server {verb}", description=about)
    parser.add_argument("--dir", type=Path, help="the folder that `forge-server init` had, if any")
    if verb == "direct":
        parser.add_argument("command", nargs=argparse.REMAINDER, help="as in `backup /backups`")
    given = parser.parse_args(words)
    if verb == "direct" and not given.command:
        parser.error("which command of forge? As in `forge-server direct backup /backups`")
    etc = given.dir.resolve() if given.dir else ETC
    place = ["--dir", str(given.dir)] if given.dir else []
    if not _there(etc / "server.env"):
        _refuse(
            f"forge-server {verb}: there is no server in {etc}: name its folder with --dir, or make"
            f" one with `{shlex.join(['forge-server', 'init', *place])}`"
        )
    return answers(place), getattr(given, "command", [])


def _refuse(why: str) -> NoReturn:
    """Say what is wrong, and end as other bad input does."""
    sys.stderr.write(f"{why}\n")
    sys.exit(USAGE)


def _there(file: Path) -> bool:
    try:
        return file.exists()
    except PermissionError:
        _refuse(f"forge-server: {file} is not yours to read: run it as root")


def read(file: Path) -> dict[str, str]:
    """Return the variables of a settings file; none if there is none."""
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip('"') for name, value in pairs}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forge-server init",
        description="Make this machine a Forge server: settings, a secret, a certificate, the"
        " tables, services and a nightly backup. Run again, it changes what is asked for.",
    )
    add = parser.add_argument
    several = "how callers name this machine; may be given several times"
    add("--name", action="append", type=_host, help=several)
    add("--database-url", help="postgresql://…, a database of its own")
    add("--store-url", help="s3://… or file://…; default: a folder of this machine")
    add("--host", help="the address to listen on; default: all")
    add("--port", type=_port, help="its port; default: 8900")
    add("--tls-cert", type=_file, help="your certificate chain, PEM; default: an own authority's")
    add("--tls-key", type=_file, help="its key, PEM")
    add("--no-tls", action="store_true", help="a proxy in front of the server speaks TLS")
    add("--dir", type=Path, help="keep all of it in this folder, without services")
    return parser


def _port(text: str) -> int:
    if text.isdecimal() and 0 < int(text) <= LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a port: write a number from 1 to {LAST_PORT}")


def _host(text: str) -> str:
    with suppress(ValueError):
        return str(ip_address(text))
    if HOST.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither a host's name nor an address: write forge.example or 192.0.2.7"
    )


def _file(text: str) -> Path:
    if (path := Path(text)).is_file():
        return path
    raise argparse.ArgumentTypeError(f"there is no file {text}")


def _former_names(etc: Path, kept: Mapping[str, str]) -> tuple[str, ...]:
    host = urlsplit(kept.get("FORGE_PUBLIC_URL", "")).hostname
    return named(etc / CHAIN) or ((host,) if host else ())


def _asked_name() -> str:
    name = socket.getfqdn()
    try:
        return _host(_ask("name of this machine for callers", name) or name)
    except argparse.ArgumentTypeError as error:
        _refuse(f"forge-server init: {error}")


def _ask(what: str, default: str) -> str:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return ""
    sys.stderr.write(f"{what}{f' [{default}]' if default else ''}: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() or default
