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

# Every rank listens on its own port, and greets all members on theirs, itself included. Something
# else may accept a connection before the other program listens, so only an answer counts.
GREET = """
import json, os, socket, threading
gang = json.loads(os.environ["FORGE_GANG"])
members, own = gang["members"], gang["members"][gang["rank"]]
master = [os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])]
assert master == [members[0]["address"], members[0]["port"]]
assert os.environ["NODE_RANK"] == str(gang["rank"])
door = socket.create_server(("", own["port"]))
heard = set()
def hear():
    while True:
        line = door.accept()[0]
        heard.add(int(line.recv(100)))
        line.sendall(b"welcome")
threading.Thread(target=hear, daemon=True).start()
def greet(address, port):
    try:
        with socket.create_connection((address, port), timeout=5) as line:
            line.sendall(str(gang["rank"]).encode())
            return line.recv(100)
    except OSError:
        return b""
for one in members:
    while not greet(one["address"], one["port"]):
        threading.Event().wait(0.1)
while len(heard) < len(members):
    threading.Event().wait(0.1)
print("rank", gang["rank"], "at", own["port"], "heard", sorted(heard), flush=True)
print("gloo on", os.environ.get("GLOO_SOCKET_IFNAME"), flush=True)
"""

# Every rank saves its state at once, and once more when it must stop. Started again with a state,
# all succeed.
RESUME = """
import os, pathlib, signal, sys
rank, folder = os.environ["RANK"], pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
found = sorted(path.name for path in folder.iterdir())
def leave(*_):
    (folder / "last").write_text("x")
    sys.exit(3)
signal.signal(signal.SIGTERM, leave)
# In one write: mpirun mixes the output of all ranks as it comes.
print(f"rank {rank} found {found}" + os.linesep, end="", flush=True)
if found:
    sys.exit(0)
(folder / ("state" if rank == "0" else "mine")).write_text("1")
while True:
    signal.pause()
"""

# Every rank writes its shard of each step, and once all have, rank 0 names the step in `latest`.
# Left alone, rank 0 says so in its folder. Started again, all succeed that find the shards of all
# ranks of that step.
SHARDS = """
import os, pathlib, socket, sys, threading
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = pathlib.Path(os.environ["FORGE_CHECKPOINT_DIR"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
def write(path, text):
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
def shards(step):
    found = sorted((folder / f"step-{step}").glob("shard-*"))
    return [(path.name, path.read_text()) for path in found]
if (folder / "latest").exists():
    step = (folder / "latest").read_text()
    whole = shards(step) == [(f"shard-{one}", f"{step} of {one}") for one in range(size)]
    alone = (folder / "alone").exists()
    print(f"rank {rank} found step {step} whole {whole} alone {alone}", flush=True)
    sys.exit(0 if whole else 9)
print(f"rank {rank} found []", flush=True)
if rank == 0:
    with socket.create_server(place) as door:
        lines = [door.accept()[0] for _ in range(size - 1)]
else:
    while True:
        try:
            lines = [socket.create_connection(place)]
            break
        except OSError:
            threading.Event().wait(0.1)
def met(line):
    try:
        line.sendall(b"x")
        return line.recv(1)
    except OSError:
        return b""
def meet():
    if not all([met(line) for line in lines]):
        if rank == 0:
            write(folder / "alone", "x")
        sys.exit(1)
for step in range(1, 10**6):
    write(folder / f"step-{step}" / f"shard-{rank}", f"{step} of {rank}")
    meet()
    if rank == 0:
        write(folder / "latest", str(step))
    meet()
    threading.Event().wait(0.2)
"""

# As RESUME, for mpirun: it kills the others as soon as one rank fails.
RESUME_MPI = RESUME.replace("sys.exit(3)", "sys.exit(0)")

# Every rank adds up all ranks through MPI, and says where it runs. Then it waits, if it is told to.
# The constants are Open MPI's.
MPI = """
import ctypes, os, signal, sys
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, number, added = (
    ctypes.byref(ctypes.c_char.in_dll(mpi, f"ompi_mpi_{name}"))
    for name in ("comm_world", "int", "op_sum")
)
assert mpi.MPI_Init(None, None) == 0
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
assert mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, number, added, world) == 0
told = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK")]
same = f"{rank.value} {size.value} 0 {rank.value}".split()
place = os.path.dirname(os.environ["FORGE_OUTPUT_DIR"]) == os.path.dirname(os.getcwd())
secret = "FORGE_GANG_SECRET" in os.environ
# In one write: mpirun mixes the output of all ranks as it comes.
said = f"{rank.value} of {size.value} got {total.value} {told == same} {place} {secret}"
print(said + os.linesep, end="", flush=True)
with open(os.path.join(os.environ["FORGE_OUTPUT_DIR"], "sum.txt"), "w") as file:
    file.write(f"{rank.value} {total.value}")
if "wait" in sys.argv:
    signal.pause()
mpi.MPI_Finalize()
"""

# Every rank says what share of the batch is its own, and how its speed was measured.
SHARE = """
import json, os
gang = json.loads(os.environ["FORGE_GANG"])
own = gang["members"][gang["rank"]]
print(own["worker"], "share", os.environ["FORGE_SPEED_SHARE"], own["method"], flush=True)
"""
