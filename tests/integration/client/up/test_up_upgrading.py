"""The process in which a `forge up` upgrades its database: its errors, and its own end."""

from __future__ import annotations

import os
import signal
from multiprocessing import active_children

import psycopg
import pytest
from forge_client.errors import ClientError
from forge_client.up.up import upgrading

NOBODY = "postgresql://nobody@127.0.0.1:1/none"


def test_an_error_of_the_upgrade_is_raised_here() -> None:
    with upgrading() as upgrade, pytest.raises(psycopg.OperationalError, match="refused"):
        upgrade(NOBODY)
    assert not active_children()


def test_the_death_of_the_process_is_told() -> None:
    with upgrading() as upgrade:
        for child in active_children():
            os.kill(child.pid or 0, signal.SIGKILL)
        with pytest.raises(ClientError, match="has died"):
            upgrade(NOBODY)
