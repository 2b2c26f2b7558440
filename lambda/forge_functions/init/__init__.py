"""`forge-server init`, from a bare machine to a service: each step is skipped where it was done."""

import secrets
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import psycopg
from forge_schema.access.api_keys import Keys
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import Database, explained
from forge_schema.model.states import Role
from forge_schema.program import faults

from forge_functions.init import answers, authority, service
from forge_functions.init.answers import Answers, read

SECRET = "FORGE_SERVER_SECRET"  # noqa: S105 - a variable's name
OF_SWEEPER = ("FORGE_DATABASE_URL",)
# Which version was started: after an upgrade, what runs is another one.
VERSION = "version"
HEAD = "# Made by `forge-server init`; what is added here stays.\n"


def main(words: Sequence[str]) -> None:
    """Make this machine a server, and say what was done and what comes next."""
    given = answers.answers(words)
    with faults.ending("forge-server init"):
        _init(given)


def _init(given: Answers) -> None:
    for folder in (given.etc, given.state):
        folder.mkdir(mode=0o755 if given.systemd else 0o700, parents=True, exist_ok=True)
    if given.systemd:
        service.make_user()
    # First what may fail, before anything runs or is promised.
    _migrate(given.settings["FORGE_DATABASE_URL"])
    certificate = _certificate(given)
    changed = _settings(given, certificate) or _ran(given) != version("forge-queue")
    if given.systemd:
        lines = service.with_systemd(given, changed=changed)
    else:
        lines = service.in_background(given, changed=changed)
    for line in lines:
        say(line)
    service.await_answer(given)
    authority.write(given.etc / VERSION, version("forge-queue").encode(), 0o644)
    say("the server and the sweeper run")
    _first_key(given)
    _next(given)


def _migrate(url: str) -> None:
    try:
        upgrade(url)
    except psycopg.OperationalError as error:
        raise explained(error, url) from error
    say("the database has Forge's tables")


def _certificate(given: Answers) -> dict[str, str]:
    """Return the settings of TLS; of our own making unless a certificate was given."""
    if not given.tls or "FORGE_TLS_CERT" in given.settings:
        return {}
    own = given.etc / authority.CHAIN
    kept = read(given.file).get("FORGE_TLS_CERT")
    if kept and kept != str(own):
        return {}
    chain, key, made = authority.issued(given.etc, given.names)
    if given.systemd:
        service.let_read(chain, key)
    if made:
        say(f"made a certificate for {', '.join(given.names)}: {chain}")
    return {"FORGE_TLS_CERT": str(chain), "FORGE_TLS_KEY": str(key)}


def _settings(given: Answers, certificate: Mapping[str, str]) -> bool:
    """Write both files of settings, and tell whether they are others than before."""
    kept = read(given.file)
    secret = {SECRET: kept.get(SECRET) or secrets.token_hex(32)}
    without_tls = {} if given.tls else {"FORGE_TLS_CERT": "", "FORGE_TLS_KEY": ""}
    settings = {**kept, **given.settings, **certificate, **secret, **without_tls}
    settings = {name: value for name, value in settings.items() if value}
    of_sweeper = {name: settings[name] for name in OF_SWEEPER}
    sweeper = given.etc / "sweeper.env"
    changes = [_write(given.file, settings), _write(sweeper, {**read(sweeper), **of_sweeper})]
    return any(changes)


def _ran(given: Answers) -> str:
    """Return the version that an earlier run has started; "" before the first."""
    file = given.etc / VERSION
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _write(path: Path, settings: Mapping[str, str]) -> bool:
    if path.exists() and read(path) == settings:
        return False
    text = HEAD + "".join(f"{name}={value}\n" for name, value in settings.items())
    authority.write(path, text.encode(), 0o600)
    say(f"wrote {path}")
    return True


def _first_key(given: Answers) -> None:
    """Make an admin's key, unless there is one; its text goes to stdout alone."""
    with Database(given.settings["FORGE_DATABASE_URL"], size=1) as database:
        keys = Keys(database, actor="init")
        if any(key["role"] == Role.ADMIN for key in keys.listed()):
            return
        text = keys.create("admin", Role.ADMIN)[1]
    say("made an API key of an admin; save it now, it is not shown again:")
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _next(given: Answers) -> None:
    ours = given.etc / "authority.pem"
    trust = f"FORGE_TLS_CA={ours} " if ours.exists() and given.tls else ""
    say(f"the server is {given.url}; from here, with that key in FORGE_API_KEY:")
    say(f"  {trust}FORGE_URL={given.url} forge doctor")
    if trust:
        say(f"what `forge invite` and `forge worker add` print trusts it; others need {ours}")


def say(line: str) -> None:
    """Say something to the person who runs it."""
    sys.stderr.write(f"{line}\n")
