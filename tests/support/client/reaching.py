"""A client that reaches a queue directly or through a server, for tests of both."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from forge_client import Client
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Role
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.queue.rig import Rig

WAYS = ("direct", "http")


@contextmanager
def reaching(way: str, rig: Rig, store_url: str) -> Iterator[Client]:
    """Yield a client for ann, who has every permission."""
    if way == "direct":
        with Client(database_url=rig.url, store_url=store_url, owner="ann") as client:
            yield client
        return
    with (
        served(server_settings(rig.url, store_url)) as url,
        Client(url=url, api_key=key(rig)) as client,
    ):
        yield client


def key(rig: Rig, owner: str = "ann", role: Role = Role.ADMIN) -> str:
    """Make an API key and return its text."""
    return Keys(rig.database, actor="user:root").create(owner, role)[1]
