"""Programs for gangs, which need nothing but Python."""

# Every rank meets the master and learns the sum of all ranks; then it acts as it is told.
MEET = """
import os, socket, threading
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
print("rank", rank, "of", size, os.environ["FORGE_BACKEND"], flush=True)
if rank == 0:
    with socket.create_server(place) as door:
        lines = [door.accept()[0] for _ in range(size - 1)]
    total = sum(int(line.recv(100)) for line in lines)
    for line in lines:
        line.sendall(str(total).encode())
else:
    while True:
        try:
            line = socket.create_connection(place)
            break
        except OSError:
            threading.Event().wait(0.1)
    line.sendall(str(rank).encode())
    total = int(line.recv(100))
print("rank", rank, "got", total, flush=True)
with open(os.path.join(os.environ["FORGE_OUTPUT_DIR"], "sum.txt"), "w") as file:
    file.write(f"{rank} {total}")
"""

# Rank 0 saves its state at once, and once more when it must stop; the others' files are nobody's
# checkpoint. Started again with a state, all succeed.
RESUME = """
import os, pathlib, signal, sys
rank, folder = os.environ["RANK"], pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
found = sorted(path.name for path in folder.iterdir())
def leave(*_):
    (folder / "last").write_text("x")
    sys.exit(3)
signal.signal(signal.SIGTERM, leave)
print(f"rank {rank} found {found}", flush=True)
if found:
    sys.exit(0)
(folder / ("state" if rank == "0" else "mine")).write_text("1")
while True:
    signal.pause()
"""

# Every rank says what share of the batch is its own, and how its speed was measured.
SHARE = """
import json, os
gang = json.loads(os.environ["FORGE_GANG"])
own = gang["members"][gang["rank"]]
print(own["worker"], "share", os.environ["FORGE_SPEED_SHARE"], own["method"], flush=True)
"""
