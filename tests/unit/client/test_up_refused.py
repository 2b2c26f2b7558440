"""What a `forge up` refuses before it has touched anything."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from forge_client.errors import ClientError
from forge_client.up.detached import Plan, detached, locked
from forge_client.up.server import HOST, Server

if TYPE_CHECKING:
    from pathlib import Path


def test_a_port_that_somebody_answers_on_is_not_taken_for_its_own(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ClientError, match=f"port {port}") as caught:
            Server(tmp_path, port=port, say=print)
    assert "--port" in caught.value.hint
    assert Server(tmp_path, port=port, say=print).url.endswith(str(port))


def test_one_that_runs_keeps_its_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "up.log"
    log.parent.mkdir()
    log.write_text("all is well")
    with (
        locked(tmp_path),
        pytest.raises(ClientError, match=f"already, process {os.getpid()}") as caught,
    ):
        detached(Plan(tmp_path))
    assert "forge down" in caught.value.hint
    assert log.read_text() == "all is well"
