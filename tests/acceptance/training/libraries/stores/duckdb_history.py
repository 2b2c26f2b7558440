"""A DuckDB database holds the history and the newest state."""

import json
import threading
from pathlib import Path

import duckdb

STEPS = 240
pause = threading.Event()
folder = Path("ck")
folder.mkdir(exist_ok=True)
database = duckdb.connect(str(folder / "run.duckdb"))
database.execute("CREATE TABLE IF NOT EXISTS history (step INTEGER PRIMARY KEY, loss DOUBLE)")
database.execute("CREATE TABLE IF NOT EXISTS state (step INTEGER, weights BLOB)")
done, weights = database.execute("SELECT * FROM state").fetchone() or (0, bytes(40_000))
print("starts at", done, flush=True)
for step in range(done + 1, STEPS + 1):
    weights = bytes((value * 5 + step) % 256 for value in weights)
    database.begin()
    database.execute("INSERT INTO history VALUES (?, ?)", [step, 1 / step])
    database.execute("DELETE FROM state")
    database.execute("INSERT INTO state VALUES (?, ?)", [step, weights])
    database.commit()
    print("step", step, flush=True)
    pause.wait(0.3)
rows, last = database.execute("SELECT count(*), max(step) FROM history").fetchone()
print("end", json.dumps({"rows": rows, "last": last, "sum": sum(weights)}))
