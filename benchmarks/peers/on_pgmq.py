"""pgmq's SQL, by prepared statements; it has no worker. Messages are archived, not deleted."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from threading import Thread
from time import perf_counter

import psycopg
from pgmq.install import (  # type: ignore[import-not-found]  # of the peers' own environment
    get_embedded_install_sql,
)

from benchmarks.peers.answering import answer, jobs_of_a_sweep

URL = os.environ["PEERS_URL"]
READ = "SELECT msg_id FROM pgmq.read('bench', 120, %s)"
POLL = "SELECT msg_id FROM pgmq.read_with_poll('bench', 120, 1, 30, 100)"
ARCHIVE = "SELECT pgmq.archive('bench', %s::bigint[])"
SEND = "SELECT pgmq.send_batch('bench', %s::jsonb[])"
AT_ONCE, BATCH = {"one": 1, "sixteen": 16, "best": 1}, {"one": 1, "sixteen": 1, "best": 100}


def connect() -> psycopg.Connection:
    return psycopg.connect(URL, autocommit=True, prepare_threshold=0)


def prepare() -> None:
    with psycopg.connect(URL) as connection:
        connection.execute(get_embedded_install_sql(), prepare=False)
        connection.execute("SELECT pgmq.create('bench')")


def enqueue(jobs: int, size: int) -> float:
    bodies = jobs_of_a_sweep(jobs)
    with connect() as connection:
        began = perf_counter()
        for start in range(0, jobs, size):
            connection.execute(SEND, [[*map(json.dumps, bodies[start : start + size])]])
        return perf_counter() - began


def drain(mode: str) -> list[float]:
    with ThreadPoolExecutor(AT_ONCE[mode]) as threads:
        began = perf_counter()
        done = list(threads.map(partial(_drain, BATCH[mode]), range(AT_ONCE[mode])))
        return [sum(done), perf_counter() - began]


def _drain(batch: int, _: int) -> int:
    done = 0
    with connect() as connection:
        while rows := connection.execute(READ, [batch]).fetchall():
            connection.execute(ARCHIVE, [[row[0] for row in rows]])
            done += len(rows)
    return done


def dispatch(times: int) -> float:
    found = []
    with connect() as sender, connect() as reader:
        for _ in range(times):
            heard: list[float] = []
            thread = Thread(target=_hear, args=(reader, heard))
            thread.start()
            # It polls by now.
            thread.join(0.15)
            began = perf_counter()
            sender.execute(SEND, [[*map(json.dumps, jobs_of_a_sweep(1))]])
            thread.join()
            found.append(heard[0] - began)
    return 1000 * median(found)


def _hear(reader: psycopg.Connection, heard: list[float]) -> None:
    rows = reader.execute(POLL).fetchall()
    heard.append(perf_counter())
    reader.execute(ARCHIVE, [[row[0] for row in rows]])


if __name__ == "__main__":
    answer({"prepare": prepare, "enqueue": enqueue, "drain": drain, "dispatch": dispatch})
