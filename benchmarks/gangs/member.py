"""A member of a gang: checks its place, meets all others at the master's address, and stays."""

import json
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

MEET_S = 60.0
AGAIN_S = 0.05

Place = tuple[str, int]


def main() -> None:
    """Meet the others; the result says who was there."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    assert size == int(os.environ["GANG_SIZE"]), f"{size} members"
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    met = gathered(place, size) if rank == 0 else joined(place, rank)
    time.sleep(float(os.environ["GANG_STAYS_S"]))
    result = json.dumps({"rank": rank, "met": met})
    Path(os.environ["FORGE_RESULT_FILE"]).write_text(result, encoding="utf-8")


def gathered(place: Place, size: int) -> list[int]:
    """As the master, wait for all others; tell each of them which ranks came, and return these."""
    with ExitStack() as connected:
        door = connected.enter_context(socket.create_server(place))
        door.settimeout(MEET_S)
        lines = [connected.enter_context(door.accept()[0]) for _ in range(size - 1)]
        ranks = sorted([0, *(int(line.recv(100)) for line in lines)])
        for line in lines:
            line.sendall(json.dumps(ranks).encode())
    return ranks


def joined(place: Place, rank: int) -> list[int]:
    """Go to the master, and return the ranks that came."""
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            line = socket.create_connection(place, MEET_S)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)
    with line:
        line.sendall(str(rank).encode())
        ranks: list[int] = json.loads(line.recv(1000))
    return ranks


if __name__ == "__main__":
    main()
