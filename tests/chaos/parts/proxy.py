"""The proxy that we ship, in front of the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.parts.member import Member
from support.http import nginx
from support.http.certificates import certificates
from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Proxy(Member):
    """nginx; clients that trust `authority` reach the servers at `url`."""

    def __init__(self, program: str, folder: Path, logs: Path, ports: Sequence[int]) -> None:
        folder.mkdir()
        made, port = certificates(folder), free_port()
        servers = [f"127.0.0.1:{one}" for one in ports]
        super().__init__("proxy", nginx.command(program, folder, port, made, servers), {}, logs)
        self.url = f"https://127.0.0.1:{port}"
        self.authority = made.authority
