"""`forge-server init`, from a bare machine to a service: each step is skipped where it was done.

`start`, `stop` and `status` are for what it has made, and `direct` for its database and its store.
"""

import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import psycopg
from forge_schema.access.api_keys import Keys
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import Database, explained
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Role
from forge_schema.program import faults
from forge_schema.read.overview import has_objects, other_store
from forge_schema.storage import open_store
from forge_schema.storage.probe import probe, require_fit
from forge_schema.storage.store_url import split
from forge_schema.sweeper.main import ProcessSettings

from forge_functions.init import answers, authority, service
from forge_functions.init.answers import Answers, read
from forge_functions.settings import FunctionsSettings, tls_faults

NAME = "forge-server init"
SECRET = "FORGE_SERVER_SECRET"  # noqa: S105 - a variable's name
OF_SWEEPER = ("FORGE_DATABASE_URL",)
OF_DIRECT = ("FORGE_DATABASE_URL", "FORGE_STORE_URL")
# Which version was started: after an upgrade, what runs is another one.
VERSION = "version"
HEAD = "# Made by `forge-server init`; what is added here stays.\n"


Settings = dict[str, dict[str, str]]
"""The variables of each program, by its name."""


class TablesRefused(ForgeError):
    """The database cannot make the tables, though the role may."""


class StoreElsewhere(ForgeError):
    """A server with another store uses the database."""


def main(verb: str, *words: str) -> None:
    """Make this machine a server, and say what was done and what comes next; or run what is one."""
    with faults.ending(f"forge-server {verb}"):
        if verb == "init":
            _init(answers.answers(words))
            return
        given, command = answers.made(verb, words)
        match verb:
            case "start":
                _init(given)
            case "stop":
                _stop(given)
            case "status":
                _status(given)
            case _:
                _direct(given, command)


def _stop(given: Answers) -> None:
    """Stop both; again, it finds nothing to stop."""
    stopped = service.stop(given)
    say(f"stopped {' and '.join(stopped)}" if stopped else "neither the server nor the sweeper ran")
    say("workers finish what they run, and wait for the server")


def _status(given: Answers) -> None:
    """Say what runs; end with 1 if one of them does not."""
    runs = {name: service.process_of(given, name) for name in service.PROGRAMS}
    for name, pid in runs.items():
        say(f"{name} " + (f"runs, process {pid}" if pid else "does not run"))
    say(f"the server is {given.url}")
    if not all(runs.values()):
        say(f"start it with `forge-server start{given.flag}`")
        sys.exit(1)


def _direct(given: Answers, command: Sequence[str]) -> NoReturn:
    """Become a command of `forge`, which gets the database and the store of this server."""
    program = Path(sys.prefix) / "bin" / "forge"
    environment = service.plain(os.environ) | {
        name: value for name, value in read(given.file).items() if name in OF_DIRECT
    }
    os.execve(program, [str(program), *command], environment)  # noqa: S606 - our own program


def _init(given: Answers) -> None:
    # First what may fail, before anything is written, ended or promised.
    settings = _settings(given)
    _require_valid(given, settings)
    service.require_free(given, settings)
    for folder in (given.etc, given.state):
        folder.mkdir(mode=0o755 if given.systemd else 0o700, parents=True, exist_ok=True)
    _require_store(given, settings[service.SERVER])
    _migrate(settings[service.SERVER]["FORGE_DATABASE_URL"])
    _require_its_own(given, settings[service.SERVER])
    if given.systemd:
        service.make_user()
    with service.undone(given, say):
        _certify(given)
        changed = [_write(given.etc / file, settings[name]) for name, file in service.OF.items()]
        other = any(changed) or _ran(given) != version("forge-queue")
        if given.systemd:
            lines = service.with_systemd(changed=other)
        else:
            lines = service.in_background(given, changed=other)
        for line in lines:
            say(line)
        service.await_answer(given)
    authority.write(given.etc / VERSION, version("forge-queue").encode(), 0o644)
    say("the server and the sweeper run")
    made = _first_key(given)
    if not made:
        create = f"forge-server direct{given.flag} key create --owner admin --role admin"
        say(f"an admin has a key; if it is lost, `{create}` makes another")
    _next(given, key="that key" if made else "an admin's key")


def _settings(given: Answers) -> Settings:
    """Return what both are to have: what was given, what earlier runs wrote, or a default."""
    kept = read(given.file)
    secret = {SECRET: kept.get(SECRET) or secrets.token_hex(32)}
    without_tls = {} if given.tls else {"FORGE_TLS_CERT": "", "FORGE_TLS_KEY": ""}
    settings = {**kept, **given.settings, **_own_certificate(given), **secret, **without_tls}
    server = {name: value for name, value in settings.items() if value}
    sweeper = read(given.etc / service.OF[service.SWEEPER])
    sweeper |= {name: server[name] for name in OF_SWEEPER}
    return {service.SERVER: server, service.SWEEPER: service.with_a_port(given, sweeper, server)}


def _own_certificate(given: Answers) -> dict[str, str]:
    """Return the settings of TLS; none if the certificate is not of our own making."""
    own = given.etc / authority.CHAIN
    if not given.tls or "FORGE_TLS_CERT" in given.settings:
        return {}
    if read(given.file).get("FORGE_TLS_CERT", str(own)) != str(own):
        return {}
    return {"FORGE_TLS_CERT": str(own), "FORGE_TLS_KEY": str(given.etc / authority.KEY)}


def _require_valid(given: Answers, settings: Settings) -> None:
    """Check all settings as the programs do, which would end with them once they are started."""
    ours = _own_certificate(given)
    server = {name: value for name, value in settings[service.SERVER].items() if name not in ours}
    with _environment(server):
        whole = FunctionsSettings.model_validate
        faults.read(NAME, FunctionsSettings, partial(whole, {}), more=tls_faults)
    with _environment(settings[service.SWEEPER]):
        faults.read(NAME, ProcessSettings, partial(ProcessSettings.model_validate, {}))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have the variables of a program that is started with these."""
    former = dict(os.environ)
    os.environ.clear()
    os.environ.update(service.plain(former) | dict(variables))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)


def _migrate(url: str) -> None:
    try:
        upgrade(url)
    except psycopg.OperationalError as error:
        raise explained(error, url) from error
    except psycopg.Error as error:
        why = str(error).partition("\n")[0]
        raise TablesRefused(
            f"the database does not take Forge's tables: {why}", hint="see the log of Postgres"
        ) from error
    say("the database has Forge's tables")


def _require_store(given: Answers, server: Mapping[str, str]) -> None:
    """Try the store as the server will; a folder that its own user is to make, that user tries."""
    url = server["FORGE_STORE_URL"]
    if given.systemd and split(url).scheme == "file":
        return
    with _environment(server):
        require_fit(url, probe(url))


def _require_its_own(given: Answers, server: Mapping[str, str]) -> None:
    """Refuse the database of another lab, whose objects are in a store of that one."""
    with _environment(server), Database(server["FORGE_DATABASE_URL"], size=1) as database:
        store = open_store(server["FORGE_STORE_URL"])
        other = other_store(database, store.url, store.size)
        kept = read(given.file).get("FORGE_STORE_URL")
        if not other or (kept == other and not has_objects(database)):
            return
    told = f"the queue in this database keeps its objects in {other}, not in {store.url}"
    if kept == store.url:
        say(f"beware: {told}, which it was here before, too")
    elif kept == other:
        raise StoreElsewhere(told, hint="copy them there first, and run this again")
    else:
        raise StoreElsewhere(
            told,
            hint="give a database of its own with --database-url; or, for a second server of that"
            " queue, its --store-url, and its FORGE_SERVER_SECRET in server.env",
        )


def _certify(given: Answers) -> None:
    """Make a certificate, unless one was given or is there."""
    if not _own_certificate(given):
        return
    chain, key, made = authority.issued(given.etc, given.names)
    if given.systemd:
        service.let_read(chain, key)
    if made:
        say(f"made a certificate for {', '.join(given.names)}: {chain}")


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


def _first_key(given: Answers) -> bool:
    """Make an admin's key, unless there is one; its text goes to stdout alone."""
    with Database(given.settings["FORGE_DATABASE_URL"], size=1) as database:
        keys = Keys(database, actor="init")
        if any(key["role"] == Role.ADMIN for key in keys.listed()):
            return False
        text = keys.create("admin", Role.ADMIN)[1]
    say("made an API key of an admin; save it now, it is not shown again:")
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return True


def _next(given: Answers, *, key: str) -> None:
    ours = given.etc / "authority.pem"
    trust = f"FORGE_TLS_CA={ours} " if ours.exists() and given.tls else ""
    say(f"the server is {given.url}; from here, with {key} in FORGE_API_KEY:")
    say(f"  {trust}FORGE_URL={given.url} forge doctor")
    if trust:
        say(f"what `forge invite` and `forge worker add` print trusts it; others need {ours}")
    kept = "" if given.systemd else ", as after a reboot"
    say(f"stop it with `forge-server stop{given.flag}`; start it again{kept} with `start`")
    say(f"back it up with `forge-server direct{given.flag} backup FOLDER`")


def say(line: str) -> None:
    """Say something to the person who runs it."""
    sys.stderr.write(f"{line}\n")
