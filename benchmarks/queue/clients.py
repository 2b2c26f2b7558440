"""Several clients of one side, each a process, since threads would share one interpreter."""

from multiprocessing import get_context
from multiprocessing.connection import Connection

from forge_side import ForgeSide
from raw_side import RawSide

PATIENCE_S = 120


class Clients:
    """This many processes, each one worker on the same database."""

    def __init__(self, side: type[ForgeSide | RawSide], url: str, number: int) -> None:
        context = get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(number):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(side, url, there), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        self._answers()

    def pass_on(self, jobs: int, count: int) -> int:
        """Have each client pass at least this many jobs, and return how many all passed."""
        for pipe in self._pipes:
            pipe.send((jobs, count))
        return sum(self._answers())

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(PATIENCE_S)

    def _answers(self) -> list[int]:
        for pipe in self._pipes:
            assert pipe.poll(PATIENCE_S), "a client does not answer"
        return [pipe.recv() for pipe in self._pipes]


def _serve(made: type[ForgeSide | RawSide], url: str, pipe: Connection) -> None:
    side = made(url)
    pipe.send(0)
    while asked := pipe.recv():
        jobs, count = asked
        pipe.send(side.pass_on(jobs, count))
    side.close()
