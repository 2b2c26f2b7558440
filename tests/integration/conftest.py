"""Fixtures for the tests of the queue and of the store."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.queue.rig import Rig, Rigs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.database.postgres import Server
    from support.http.api import Api
    from support.past.history import Past
    from support.store.storage import Bucket


@pytest.fixture(scope="session")
def rigs(postgres_server: Server, template_database: str) -> Iterator[Rigs]:
    """The queues of this test process, each lent to one test or module after the other."""
    with closing(Rigs(postgres_server, template_database)) as rigs:
        yield rigs


@pytest.fixture
def rig(rigs: Rigs) -> Iterator[Rig]:
    """A queue without jobs or workers, on a clock that the test moves."""
    with rigs.lent() as rig:
        yield rig


@pytest.fixture(scope="module")
def shared_rig(rigs: Rigs) -> Iterator[Rig]:
    """A queue for tests of one module that change nothing, or nothing that other tests look at."""
    with rigs.lent() as rig:
        yield rig


@pytest.fixture(scope="module")
def shared_api(shared_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server on the shared rig's queue."""
    from support.http.api import opened  # noqa: PLC0415  most tests serve nothing

    with opened(shared_rig, tmp_path_factory.mktemp("shared") / "store") as api:
        yield api


@pytest.fixture
def api(rig: Rig, tmp_path: Path) -> Iterator[Api]:
    """A server on the rig's queue, with a file store."""
    from support.http.api import opened  # noqa: PLC0415  most tests serve nothing

    with opened(rig, tmp_path / "store") as api:
        yield api


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """The address of a moto server, for the tests of one module."""
    from support.store.storage import moto_server  # noqa: PLC0415  most tests store nothing in S3

    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(moto: str) -> Iterator[Bucket]:
    """A bucket of the test's own."""
    from support.store.storage import new_bucket  # noqa: PLC0415  as above

    with new_bucket(moto) as made:
        yield made


@pytest.fixture(scope="session")
def past(run_folder: Path) -> Iterator[tuple[str, Past]]:
    """A database with a past of $FORGE_TEST_ATTEMPTS attempts, 300,000, shared by all."""
    from support.past.shared_past import shared_past  # noqa: PLC0415  most tests have no past

    chosen = os.environ.get("FORGE_TEST_POSTGRES_BIN")
    attempts = int(os.environ.get("FORGE_TEST_ATTEMPTS", "300000"))
    with shared_past(run_folder, attempts, Path(chosen) if chosen else None) as lent:
        yield lent
