"""The dashboard as people see it: a real server, real workers, and a key for each role."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import httpx
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Role
from support.workers.http_bed import TTL_S, HttpBed, http_bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright._impl._api_structures import SetCookieParam

OWNERS = {Role.ADMIN: "root", Role.SUBMITTER: "ann", Role.VIEWER: "ann"}
# Says what it is told to say, until nobody tells it anything any more.
ECHO = "import sys; [print(line, end='', flush=True) for line in open(sys.argv[1])]"


@dataclass
class Site:
    """A server with its workers, and who may log in."""

    bed: HttpBed
    keys: dict[Role, str]
    _cookies: dict[Role, list[SetCookieParam]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.bed.servers[0].url

    def cookies(self, role: Role) -> list[SetCookieParam]:
        """Return the cookies of somebody of a role who logged in."""
        if role not in self._cookies:
            self._cookies[role] = self.cookies_of(self.keys[role])
        return self._cookies[role]

    def cookies_of(self, key: str) -> list[SetCookieParam]:
        """Return the cookies of whoever logged in with a key."""
        answer = httpx.post(
            f"{self.url}/login", data={"key": key}, headers={"Origin": self.url}, timeout=60
        )
        assert answer.is_redirect, answer.text
        return [
            {"name": name, "value": value, "url": self.url}
            for name, value in answer.cookies.items()
        ]


@contextmanager
def running_site(root: Path, database_url: str, *, ttl_s: float = TTL_S) -> Iterator[Site]:
    """Run a server without workers until the block ends."""
    with http_bed(root, database_url, ttl_s=ttl_s) as bed:
        keys = Keys(bed.database, actor="user:root")
        made = {role: keys.create(owner, role)[1] for role, owner in OWNERS.items()}
        yield Site(bed, made)


@dataclass
class Teller:
    """A job that writes the lines that a test gives it, and ends when told."""

    path: Path
    _pipe: IO[str] | None = None

    def command(self, python: str) -> list[str]:
        """Return the job's command."""
        return [python, "-c", ECHO, str(self.path)]

    def say(self, line: str) -> None:
        """Have the job write a line; waits until the job runs."""
        if self._pipe is None:
            self._pipe = self.path.open("w", buffering=1)
        print(line, file=self._pipe)

    def end(self) -> None:
        """Let the job succeed."""
        if self._pipe is not None:
            self._pipe.close()


@contextmanager
def teller(path: Path) -> Iterator[Teller]:
    """Yield a job that is controlled through `path`."""
    os.mkfifo(path)
    told = Teller(path)
    try:
        yield told
    finally:
        told.end()
