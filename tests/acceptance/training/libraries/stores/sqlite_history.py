"""A SQLite database holds the history and the newest state; `wal` or `delete` is its journal."""

import json
import sqlite3
import sys
import threading
from pathlib import Path

STEPS = 240
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
database = sqlite3.connect(folder / "run.db")
database.execute(f"PRAGMA journal_mode={sys.argv[1]}")
database.execute("CREATE TABLE IF NOT EXISTS history (step INTEGER PRIMARY KEY, loss REAL)")
database.execute("CREATE INDEX IF NOT EXISTS by_loss ON history (loss)")
database.execute("CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY, step, weights BLOB)")
done, weights = database.execute("SELECT step, weights FROM state").fetchone() or (0, bytes(40_000))
print("starts at", done, flush=True)
for step in range(done + 1, STEPS + 1):
    weights = bytes((value * 5 + step) % 256 for value in weights)
    with database:
        database.execute("INSERT INTO history VALUES (?, ?)", (step, 1 / step))
        database.execute("REPLACE INTO state VALUES (1, ?, ?)", (step, weights))
    print("step", step, flush=True)
    pause.wait(0.3)
(sound,) = database.execute("PRAGMA integrity_check").fetchone()
(rows,) = database.execute("SELECT count(*) FROM history").fetchone()
print("end", json.dumps({"rows": rows, "sum": sum(weights), "integrity": sound}))
