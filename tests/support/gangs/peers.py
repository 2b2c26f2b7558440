"""Gangs that exist only in the test, and members that answer on this machine."""

from __future__ import annotations

from typing import Any

from forge_worker.gang.members import Gang, Peer

NONCE = "0123456789abcdef" * 2


def peer(rank: int, **changes: Any) -> Peer:  # noqa: ANN401  fields of all types
    """Return a member on 10.0.0.5, 10.0.0.6 and so on; rank 0 has the master's port 29500."""
    known = {
        "worker": f"gpu-{rank}",
        "address": f"10.0.0.{5 + rank}",
        "port": 40000 + rank,
        "nonce": NONCE,
        "program_port": 29500 + rank,
        "master_port": None if rank else 29500,
    }
    return Peer(rank=rank, **{**known, **changes})


def gang(rank: int = 0, *, nodes: int = 2, **changes: Any) -> Gang:  # noqa: ANN401  as above
    """Return a gang as one of its members sees it; `changes` are of every member."""
    return Gang(rank, tuple(peer(one, **changes) for one in range(nodes)))
