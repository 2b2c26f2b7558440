"""One client of the floor."""

import json
from queue import SimpleQueue
from threading import Event, Thread
from time import perf_counter
from typing import Any
from uuid import uuid4

import psycopg
from floor import FEED, MAKE, SUBMIT, TURN
from passing import passed
from psycopg.types.json import Jsonb
from workload import SETTLE_S, SPEC


class RawSide:
    """One worker on the floor's tables."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self.cursor = self.connection.cursor()
        self._held: list[Any] = []

    @staticmethod
    def make(url: str) -> None:
        """Make the tables in a database."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(MAKE)

    def close(self) -> None:
        self.connection.close()

    def feed(self, jobs: int, owners: int) -> None:
        """Have this many more jobs ready, dealt out to owners."""
        params = {"payload": Jsonb(SPEC.payload()), "jobs": jobs, "owners": owners}
        self.connection.execute(FEED, params)
        self.connection.execute("ANALYZE")

    def turn(self, count: int) -> int:
        """Finish what is held and claim up to `count` jobs, in one round trip."""
        params = {
            "jobs": "{" + ",".join(str(row[1]) for row in self._held) + "}",
            "tokens": "{" + ",".join(str(row[2]) for row in self._held) + "}",
            "worker_id": 1,
            "count": count,
        }
        rows = self.cursor.execute(TURN, params).fetchall()
        assert rows[0][0] == len(self._held), "a lease was lost"
        self._held = [row for row in rows if row[1] is not None]
        return len(self._held)

    def pass_on(self, jobs: int, count: int) -> int:
        """Pass at least this many jobs, `count` at a time, and return how many."""
        return passed(self.turn, jobs, count)

    def drain(self) -> None:
        """Finish what is held, and take everything out of `floor_ready`."""
        self.turn(0)
        self.connection.execute("TRUNCATE floor_ready")

    def dispatch(self, jobs: int) -> list[float]:
        """Return the seconds from INSERT to the moment when an idle listener has the job."""
        claimed: SimpleQueue[float] = SimpleQueue()
        listening, ending = Event(), Event()

        def listen() -> None:
            with psycopg.connect(self.url, autocommit=True) as hints:
                hints.execute("LISTEN floor")
                listening.set()
                while not ending.is_set():
                    for _ in hints.notifies(timeout=0.5, stop_after=1):
                        if self.turn(1):
                            claimed.put(perf_counter())
                            self.turn(0)

        thread = Thread(target=listen, daemon=True)
        thread.start()
        listening.wait()
        with psycopg.connect(self.url, autocommit=True, prepare_threshold=0) as submitter:
            found = []
            for _ in range(jobs):
                began = perf_counter()
                job = {"key": uuid4().hex, "owner": "owner-0", "payload": SPEC.payload()}
                submitter.execute(SUBMIT, {"jobs": json.dumps([job])})
                found.append(claimed.get(timeout=30) - began)
                Event().wait(SETTLE_S)
        ending.set()
        thread.join()
        return found
