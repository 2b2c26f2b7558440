"""Futures of jobs: one thread asks for the states of all that are waited for."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition, Thread
from typing import Any

from forge_schema.model.job import JobStatus, job_unknown

from forge_client.backend import Backend
from forge_client.errors import ClientError, Outage

QUICKEST_S = 0.1
# They fetch results and the ends of logs, so that a large one does not hold up the others.
FETCHERS = 4

Fetch = Callable[[JobStatus], Any]
"""Returns what an ended job found, or raises how it failed."""

_watches: dict[Backend, "_Watch"] = {}
_changed = Condition()


def watch(backend: Backend, job_id: int, fetch: Fetch, future: Future[Any]) -> None:
    """Complete a future once a job has ended, unless it is cancelled before."""
    with _changed:
        watching = _watches.get(backend)
        if watching is None:
            watching = _watches[backend] = _Watch(backend)
            Thread(target=watching.run, name="forge-jobs", daemon=True).start()
        watching.pending[future] = (job_id, fetch)
        watching.pause_s = QUICKEST_S
        _changed.notify_all()


class _Watch:
    """Asks a backend until nobody waits for its jobs any more."""

    def __init__(self, backend: Backend) -> None:
        self.pending: dict[Future[Any], tuple[int, Fetch]] = {}
        self.pause_s = QUICKEST_S
        self._backend = backend
        self._outage = Outage()

    def run(self) -> None:
        with ThreadPoolExecutor(FETCHERS, thread_name_prefix="forge-results") as fetchers:
            while waited := self._waited():
                for future, fetch, status in self._ended(waited):
                    fetchers.submit(_complete, future, fetch, status)
                with _changed:
                    _changed.wait(self.pause_s)
                    self.pause_s = min(self.pause_s * 1.3, self._backend.slowest_s)

    def _waited(self) -> dict[Future[Any], tuple[int, Fetch]]:
        with _changed:
            self.pending = {each: job for each, job in self.pending.items() if not each.done()}
            if not self.pending:
                del _watches[self._backend]
            return dict(self.pending)

    def _ended(
        self, waited: dict[Future[Any], tuple[int, Fetch]]
    ) -> list[tuple[Future[Any], Fetch, JobStatus | Exception]]:
        ids = list({job_id for job_id, _ in waited.values()})
        outcomes: dict[int, JobStatus | Exception]
        try:
            answer = self._outage.ask(lambda: self._backend.statuses(ids))
            if answer is None:
                return []
            outcomes = {**answer}
        except Exception as error:  # noqa: BLE001 - also a client that was closed
            outcomes = dict.fromkeys(ids, error)
        ended = [
            (future, fetch, outcomes.get(job_id) or _unknown(job_id))
            for future, (job_id, fetch) in waited.items()
            if not (isinstance(state := outcomes.get(job_id), JobStatus) and not state.terminal)
        ]
        with _changed:
            for future, _, _ in ended:
                self.pending.pop(future, None)
        return ended


def _unknown(job_id: int) -> ClientError:
    error = job_unknown(job_id)
    return ClientError(error.message, hint=error.hint, code=error.code)


def _complete(future: Future[Any], fetch: Fetch, status: JobStatus | Exception) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(status, Exception):
        future.set_exception(status)
        return
    try:
        future.set_result(fetch(status))
    except StopIteration as error:
        # An asyncio future refuses it, and `await` would never return.
        stopped = RuntimeError("the job's function raised StopIteration")
        stopped.__cause__ = error
        future.set_exception(stopped)
    except BaseException as error:  # noqa: BLE001 - whatever the function raised
        future.set_exception(error)
