"""Secrets of jobs: read by name from the operator's folder, and redacted in all output."""

import hashlib
import hmac
import json
import stat
from dataclasses import replace
from pathlib import Path

import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Grant
from forge_schema.model.quantities import counted, size_text
from forge_schema.model.spec import (
    ENV_NAME,
    FOR_ALL,
    OF_TEAM,
    SECRET,
    has_folder,
    is_folder_name,
    owner_mark,
)

from forge_worker.attempt import LiveAttempt, Redactor
from forge_worker.runners.runner import Runner, RunSpec

SHORTEST = 4  # shorter ones would be redacted inside ordinary words
LARGEST_BYTES = 64 << 10  # within the kernel's limit for one variable
# How many secrets a worker announces, and how many owners of one.
MOST, MOST_OWNERS = 800, 150

log = structlog.get_logger(__name__)


class SecretUnusable(ForgeError):
    """A secret is missing on this worker, or cannot be used."""


class SecretStore:
    """Look up secrets by name: the owner's own, then the team's, then those of all.

    Without a folder, there are none. `worker` is the worker's name for error messages.
    """

    def __init__(self, folder: Path | None, worker: str) -> None:
        self._folder = folder
        self._worker = worker
        self._warned: set[Path] = set()

    def secret(self, grant: Grant, name: str) -> str:
        """Return the text of a secret for a job, without the newline that editors append.

        Raises:
            SecretUnusable: there is no secret of this name for its owner, or it cannot be used.
        """
        path = self._find(grant, name)
        try:
            if path.stat().st_mode & stat.S_IROTH and path not in self._warned:
                self._warned.add(path)
                log.warning("secret_world_readable", file=str(path))
            data = path.read_bytes()
            return _text(data)
        except OSError as error:
            why = f"its file cannot be read: {error.strerror}"
            raise self._refused(name, why, "make it readable for the worker's user") from error
        except _Unfit as error:
            raise self._refused(name, *error.args) from error

    def known(self, grant: Grant, name: str) -> str | None:
        """Return the text of a secret, None if there is none; raises as `secret`."""
        return self.secret(grant, name) if self._place(grant, name) else None

    def labels(self) -> dict[str, str]:
        """Return the labels that tell which secrets there are, for all owners or for some.

        The mark of a team has an @ before it; `forge_is_of_team` knows who is in it.

        Whether a secret can be used shows when a job gets it.
        """
        if self._folder is None:
            return {}
        owners: dict[str, set[str]] = {}
        for place in _entries(self._folder):
            if place.is_file():
                owners.setdefault(place.name, set()).add(FOR_ALL)
            elif place.is_dir():
                for own in _entries(place):
                    owners.setdefault(own.name, set()).add(_mark(place.name))
        names = sorted(name for name in owners if ENV_NAME.fullmatch(name))[:MOST]
        return {
            SECRET + name: FOR_ALL
            if FOR_ALL in owners[name]
            else ",".join(["", *sorted(owners[name])[:MOST_OWNERS], ""])
            for name in names
        }

    def _find(self, grant: Grant, name: str) -> Path:
        if self._folder is None:
            raise self._refused(
                name,
                "it keeps no secrets",
                f"set FORGE_SECRETS_DIR there to a folder that has a file {name}, and restart it",
            )
        if path := self._place(grant, name):
            return path
        raise self._refused(
            name,
            f"it has no such secret for {grant.owner}",
            f"write it to the file {name} in FORGE_SECRETS_DIR there",
        )

    def _place(self, grant: Grant, name: str) -> Path | None:
        if self._folder is None:
            return None
        # A name can be any text; one that is not a valid folder name has no folder.
        own = [grant.owner] if has_folder(grant.owner) else []
        folders = [*own, *([OF_TEAM + grant.team] if grant.team else [])]
        places = [self._folder / whose / name for whose in folders if is_folder_name(whose)]
        return next((path for path in (*places, self._folder / name) if path.is_file()), None)

    def _refused(self, name: str, why: str, hint: str) -> SecretUnusable:
        return SecretUnusable(
            f"the job needs the secret {name}, but worker {self._worker} cannot provide it: {why}",
            hint=hint,
        )


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _mark(folder: str) -> str:
    if folder.startswith(OF_TEAM):
        return OF_TEAM + owner_mark(folder.removeprefix(OF_TEAM))
    return owner_mark(folder)


class _Unfit(Exception):
    """A secret's file cannot be used; raised with the reason and a hint."""


def _text(data: bytes) -> str:
    if len(data) > LARGEST_BYTES:
        raise _Unfit(f"it is larger than {size_text(LARGEST_BYTES)}", "use a shorter one")
    try:
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise _Unfit("it is not UTF-8 text", "encode it, as base64 does") from error
    if "\0" in text:
        raise _Unfit("it contains a NUL character", "encode it, as base64 does")
    if len(text) < SHORTEST:
        raise _Unfit(f"it is shorter than {counted(SHORTEST, 'character')}", "use a longer one")
    return text


class SecretProvision:
    """Give each job the secrets that it names, as variables of the same names."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:  # noqa: ARG002  as every provision
        """Return the spec with the secrets.

        Raises:
            SecretUnusable: one is missing here; another worker may have it.
        """
        secrets = self._cover(attempt)
        if secrets:
            attempt.folders.secrets.write_bytes(_digest(secrets, attempt))
        return replace(spec, secrets={**spec.secrets, **secrets})

    def recall(self, attempt: LiveAttempt) -> bool:
        """Cover the secrets of a job that an earlier agent started; False if they have changed."""
        try:
            known = attempt.folders.secrets.read_bytes()
            return hmac.compare_digest(known, _digest(self._cover(attempt), attempt))
        except (SecretUnusable, OSError):
            return False

    def _cover(self, attempt: LiveAttempt) -> dict[str, str]:
        names = attempt.grant.spec.get("secrets", [])
        secrets = {name: self._store.secret(attempt.grant, name) for name in names}
        attempt.redactor = Redactor(secrets.values())
        return secrets


def _digest(secrets: dict[str, str], attempt: LiveAttempt) -> bytes:
    """Return a slow hash of a job's secrets, salted with its lease's random nonce.

    The cost is that of RFC 7914 for interactive use: 16 MiB, some tens of milliseconds.
    """
    text = json.dumps(secrets, sort_keys=True).encode()
    return hashlib.scrypt(text, salt=attempt.fence.nonce.bytes, n=2**14, r=8, p=1)
