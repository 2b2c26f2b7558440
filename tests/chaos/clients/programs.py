"""Programs as people write them: below a shell, with links, with a database, in place.

They know nothing of Forge but the folders, and check for themselves what they find after a restart.
What they print is evidence: `from 7` is the step that an attempt begins after, `ready to stop` that
a stop will be handled, and `stopped` that it was; after `all is done` none will be.
"""

from __future__ import annotations

# How a program ends that finds another checkpoint than it wrote, half a file, a folder that it
# cannot remove, or an input that is not whole.
DAMAGED, HALF, NOT_REMOVED, NOT_WHOLE = 99, 98, 97, 96

BEGIN = """
import hashlib, os, shutil, signal, sqlite3, sys, threading
steps, pause = int(sys.argv[1]), float(sys.argv[2])
commits = sys.argv[3:] == ["commits"]
asked = threading.Event()

def begins(step):
    print("from", step, flush=True)

def commit(step):
    if commits:
        with open(os.environ["FORGE_CHECKPOINT_FILE"], "w") as file:
            file.write(str(step))

def replace(name, text):
    with open("next", "w") as file:
        file.write(text)
    os.replace("next", name)

def end(step):
    with open(os.environ["FORGE_OUTPUT_DIR"] + "/steps", "w") as file:
        file.write(str(step))
"""
COUNTED = """
os.chdir(os.environ["FORGE_CHECKPOINT_DIR"])
step = int(open("step").read()) if os.path.exists("step") else 0
"""
# What it says of a stop does not go through the pipe, whose reader may have stopped before.
STOPS = f"""{BEGIN}{COUNTED}
signal.signal(signal.SIGTERM, lambda *_: asked.set())
begins(step)
print("ready to stop", file=sys.stderr, flush=True)
while step < steps:
    step += 1
    replace("step", str(step))
    if asked.wait(pause):
        print("stopped", file=sys.stderr, flush=True)
        sys.exit(143)
print("all is done", file=sys.stderr, flush=True)
end(step)
"""
# Each step is a folder that is renamed whole, and `last` leads to the newest.
LINKED = f"""{BEGIN}
os.chdir(os.environ["FORGE_CHECKPOINT_DIR"])
shutil.rmtree("half", ignore_errors=True)
names = [name for name in os.listdir() if name.startswith("step-")]
step = max((int(name[5:]) for name in names), default=0)
if names:
    last = os.readlink("last") if os.path.islink("last") else ""
    if last not in names or int(last[5:]) < step - 1 or open("last/weights").read() != last * 50:
        sys.exit(DAMAGED)
    step = int(last[5:])
begins(step)
while step < steps:
    step += 1
    name = f"step-{{step}}"
    shutil.rmtree(name, ignore_errors=True)
    os.mkdir("half")
    with open("half/weights", "w") as file:
        file.write(name * 50)
    os.rename("half", name)
    if os.path.lexists("next"):
        os.remove("next")
    os.symlink(name, "next")
    os.replace("next", "last")
    commit(step)
    shutil.rmtree(f"step-{{step - 3}}", ignore_errors=True)
    asked.wait(pause)
end(step)
""".replace("DAMAGED", str(DAMAGED))
# The third word is the database's journal. An old log beside a new database is malformed, or hides
# rows.
STORED = f"""{BEGIN}
def train(database):
    database.execute("PRAGMA journal_mode=" + sys.argv[3])
    database.execute("PRAGMA wal_autocheckpoint=20")
    database.execute("CREATE TABLE IF NOT EXISTS history (step INTEGER PRIMARY KEY, note TEXT)")
    database.execute("CREATE INDEX IF NOT EXISTS by_note ON history (note)")
    rows, step = database.execute("SELECT count(*), coalesce(max(step), 0) FROM history").fetchone()
    (sound,) = database.execute("PRAGMA integrity_check").fetchone()
    if sound != "ok" or rows != step:
        raise sqlite3.DatabaseError(sound, rows, step)
    begins(step)
    while step < steps:
        step += 1
        note = hashlib.sha256(str(step).encode()).hexdigest() * 30
        database.execute("INSERT INTO history VALUES (?, ?)", (step, note))
        asked.wait(pause)
    end(step)

os.chdir(os.environ["FORGE_CHECKPOINT_DIR"])
try:
    train(sqlite3.connect("run.db", isolation_level=None))
except sqlite3.OperationalError:
    raise
except sqlite3.DatabaseError as error:
    print(error, flush=True)
    sys.exit(DAMAGED)
""".replace("DAMAGED", str(DAMAGED))
# One file is rewritten in place, slowly, and ends in the digest of the rest. A full disk, where the
# program itself leaves half a file, is another matter.
REWRITTEN = f"""{BEGIN}
os.chdir(os.environ["FORGE_CHECKPOINT_DIR"])
step = 0
if os.path.exists("state.bin"):
    data = open("state.bin", "rb").read()
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        print("half a file:", len(data), flush=True)
        sys.exit(HALF)
    step = int(data[:8])
begins(step)
while step < steps:
    step += 1
    data = b"%08d" % step + os.urandom(1 << 20)
    data += hashlib.sha256(data).digest()
    try:
        with open("state.bin", "wb", buffering=0) as file:
            for begin in range(0, len(data), 1 << 17):
                file.write(data[begin : begin + (1 << 17)])
                asked.wait(pause / 16)
    except OSError:
        os.remove("state.bin")
        raise
    asked.wait(pause / 2)
end(step)
""".replace("HALF", str(HALF))
# Its checkpoint folder is one of its own project, which it removes once all is done.
TIDY = f"""{BEGIN}
os.makedirs("snapshots", exist_ok=True)
os.chdir("snapshots")
step = int(open("step").read()) if os.path.exists("step") else 0
begins(step)
while step < steps:
    step += 1
    replace("step", str(step))
    asked.wait(pause)
os.chdir("..")
try:
    shutil.rmtree("snapshots")
except OSError as error:
    print(error, flush=True)
    sys.exit(NOT_REMOVED)
end(step)
""".replace("NOT_REMOVED", str(NOT_REMOVED))


def below_a_shell(program: str) -> str:
    """Return a script whose program is a child of the shell, which does not handle a stop."""
    return f"python3 -c '{program}' \"$@\" || exit $?; "


def in_a_pipeline(program: str) -> str:
    """Return a script that sends the program's output through a pipe."""
    script = f'python3 -c \'{program}\' "$@" | tee "$FORGE_OUTPUT_DIR/said"; '
    # The end of a pipeline is that of its last program.
    return script + '[ -e "$FORGE_OUTPUT_DIR/steps" ] || exit 1; '
