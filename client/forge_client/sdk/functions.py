"""Functions as jobs: `@forge.job` on a function, and an executor of calls."""

import concurrent.futures
import functools
import inspect
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from forge_client.errors import InvalidInput
from forge_client.project.forge_toml import Project
from forge_client.project.matrix import Scalar
from forge_client.project.request import check_fields, several
from forge_client.project.tasks import packs
from forge_client.sdk.arguments import in_python
from forge_client.sdk.client import Client
from forge_client.sdk.function_jobs import (
    FOLDER,
    Call,
    FunctionJob,
    FunctionTask,
    JobTasks,
    called,
    parameters,
    project_of,
    stage,
    with_project,
)
from forge_client.sdk.job import RUN
from forge_client.sdk.sending import requests
from forge_client.sdk.spec import NamedSpec

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")


class JobFunction(Generic[P, R]):
    """A function that can be submitted as a job; calling it runs it here."""

    def __init__(
        self,
        function: Callable[P, R],
        spec: NamedSpec,
        *,
        folder: Path | str | None = None,
        packages: Sequence[str] | str = (),
        client: Client | None = None,
        pickled: bool = False,
    ) -> None:
        check_fields(spec)
        functools.update_wrapper(self, function)
        self.__name__ = function.__name__
        self.function = function
        self.spec = spec
        self._folder = folder
        self._packages = several(packages)
        self._client = client
        self._pickled = pickled

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"JobFunction({self.__name__})"

    def __reduce__(self) -> tuple[Any, ...]:
        # In a job, which may lack this package, it is the bare function.
        return functools.partial, (self.function,)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> FunctionJob[R]:
        """Submit a job that calls the function with these arguments.

        Raises:
            ClientError: the function or an argument cannot be pickled, or as for `Client.submit`.
        """
        self._check(*args, **kwargs)
        return self._submit([(args, kwargs)])[0]

    # As a Callable, `self` tells mypy too what its parameters are.
    @overload
    def map(
        self, named: Iterable[Mapping[str, Any]], /, *, per_job: None = None
    ) -> list[FunctionJob[R]]: ...
    @overload
    def map(
        self, named: Iterable[Mapping[str, Any]], /, *, per_job: int
    ) -> list[FunctionTask[R]]: ...
    @overload
    def map(
        self: Callable[Concatenate[A, Q], R], first: Iterable[A], /, *, per_job: None = None
    ) -> list[FunctionJob[R]]: ...
    @overload
    def map(
        self: Callable[Concatenate[A, Q], R], first: Iterable[A], /, *, per_job: int
    ) -> list[FunctionTask[R]]: ...
    @overload
    def map(
        self: Callable[Concatenate[A, B, Q], R],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        per_job: None = None,
    ) -> list[FunctionJob[R]]: ...
    @overload
    def map(
        self: Callable[Concatenate[A, B, Q], R],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        per_job: int,
    ) -> list[FunctionTask[R]]: ...
    @overload
    def map(
        self, a: Iterable[Any], b: Iterable[Any], c: Iterable[Any], /, *more: Iterable[Any]
    ) -> list[FunctionJob[R]]: ...
    @overload
    def map(
        self,
        a: Iterable[Any],
        b: Iterable[Any],
        c: Iterable[Any],
        /,
        *more: Iterable[Any],
        per_job: int,
    ) -> list[FunctionTask[R]]: ...
    def map(
        self, *arguments: Iterable[Any], per_job: int | None = None
    ) -> Sequence[FunctionJob[R]]:
        """Submit a job for each value, in one transaction; several iterables go side by side.

        Args:
            *arguments: the values of each argument, or dicts with arguments by their names.
            per_job: how many calls a job makes, one after another; each returns or raises for
                itself. A preempted or retried job goes on with the calls that have not succeeded.

        Raises:
            ClientError: as for `submit`.
        """
        try:
            given = [*zip(*arguments, strict=True)]
        except ValueError:
            raise InvalidInput(
                f"{self.__name__}.map: the iterables do not have the same length",
                hint="give as many values of each argument",
            ) from None
        calls = [called(self.function, values) for values in given]
        for args, named in calls:
            self._check(*args, **named)
        if not calls:
            return []
        return self._submit(calls) if per_job is None else self._submit_tasks(calls, per_job)

    def options(
        self,
        *,
        client: Client | None = None,
        pickled: bool | None = None,
        **spec: Unpack[NamedSpec],
    ) -> Self:
        """Return the function with other fields of a job, on another Forge, or another trust."""
        changed: NamedSpec = {**self.spec, **spec}
        return type(self)(
            self.function,
            changed,
            folder=self._folder,
            packages=self._packages,
            client=client or self._client,
            pickled=self._pickled if pickled is None else pickled,
        )

    def job(self, job_id: int) -> FunctionJob[R]:
        """Return a job of this function that was submitted before.

        Raises:
            ClientError: there is no such job.
        """
        backend = self._connected().job(job_id).backend
        return FunctionJob(backend, job_id, pickled=self._pickled)

    def _check(self, *args: object, **kwargs: object) -> None:
        """Refuse here what could only fail in the job."""
        kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
        if any(is_one(self.function) for is_one in kinds):
            raise InvalidInput(
                f"{self.__name__} is async or a generator, and a job needs a plain function",
                hint="wrap it: def main(): return asyncio.run(…), or return list(…)",
            )
        try:
            inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidInput(
                f"{self.__name__}: {error}",
                hint=f"it is {self.__name__}{inspect.signature(self.function)}",
            ) from None

    def _connected(self) -> Client:
        return self._client or _default_client()

    def _submit(self, calls: Sequence[Call]) -> list[FunctionJob[R]]:
        parameters = [self._parameters(call) for call in calls]
        ids = self._sent(calls, [{"parameters": given} for given in parameters])
        backend = self._connected().backend
        return [FunctionJob(backend, job_id, pickled=self._pickled) for job_id in ids]

    def _submit_tasks(self, calls: Sequence[Call], per_job: int) -> list[FunctionTask[R]]:
        groups = packs(calls, per_job)
        tasks = [
            [{"name": self.__name__, "parameters": self._parameters(call)} for call in group]
            for group in groups
        ]
        ids = self._sent(groups, [{} for _ in groups], tasks)
        backend = self._connected().backend
        return [
            FunctionTask(tasks_of_job, number, pickled=self._pickled)
            for job_id, group in zip(ids, groups, strict=True)
            for tasks_of_job in [JobTasks(backend, job_id)]
            for number in range(len(group))
        ]

    @in_python()
    def _sent(
        self,
        calls: Sequence[Call | Sequence[Call]],
        own: Sequence[Mapping[str, Any]],
        tasks: Sequence[Sequence[Mapping[str, Any]]] = (),
    ) -> list[int]:
        """Submit a job for each call, or for each group of calls, and return their ids."""
        root, import_from = project_of(self.function, self._folder)
        with tempfile.TemporaryDirectory(prefix="forge-function-") as staged:
            stage(Path(staged) / FOLDER, self.function, calls, import_from, self._packages, tasks)
            project = Project.read(root) if root else Project()
            parcel = with_project(project, root, Path(staged))
            called = {} if root or project.experiment else {"experiment": self.__name__}
            fields = ({**called, **self._fields(n), **each} for n, each in enumerate(own))
            return self._connected().sender.submit(parcel, requests(project, fields))

    def _parameters(self, call: Call) -> dict[str, Scalar]:
        args, kwargs = call
        return parameters(self.function, args, kwargs, own=self.spec.get("parameters") or {})

    def _fields(self, number: int) -> dict[str, Any]:
        listed = {"requirements": f"{FOLDER}/requirements.txt"} if self._packages else {}
        key = self.spec.get("idempotency_key")
        return {
            "name": self.function.__name__,
            **listed,
            **self.spec,
            "idempotency_key": f"{key}:{number}" if key and number else key,
            "command": ["python3", RUN, str(number)],
        }


@cache
def _default_client() -> Client:
    return Client()


@overload
def job(function: Callable[P, R]) -> JobFunction[P, R]: ...
@overload
def job(
    *,
    folder: Path | str | None = None,
    packages: Sequence[str] | str = (),
    client: Client | None = None,
    pickled: bool = False,
    **spec: Unpack[NamedSpec],
) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...
def job(
    function: Callable[P, R] | None = None,
    *,
    folder: Path | str | None = None,
    packages: Sequence[str] | str = (),
    client: Client | None = None,
    pickled: bool = False,
    **spec: Unpack[NamedSpec],
) -> JobFunction[P, R] | Callable[[Callable[P, R]], JobFunction[P, R]]:
    """Make a function that can be submitted as a job: `@job` or `@job(gpus=1)`.

    Args:
        function: the function.
        folder: the project to upload with it; else that of its module, none for a script or a
            notebook.
        packages: requirements to install first, such as `["numpy>=2"]`; else the project's.
        client: the Forge to submit to; else a `Client()`, made at the first submit.
        pickled: whether `result()` loads pickles of the job. That can run its code here, so say so
            only if you trust all that it runs, and whoever can write to the store.
        **spec: fields of the job, as `Client.submit` takes them.
    """

    def made(function: Callable[P, R]) -> JobFunction[P, R]:
        return JobFunction(
            function, spec, folder=folder, packages=packages, client=client, pickled=pickled
        )

    return made if function is None else made(function)


class Executor(concurrent.futures.Executor):
    """Runs each call as a job, for programs that take an executor of `concurrent.futures`.

    Args:
        folder: as for `job`, like the others.
        packages: requirements to install first.
        client: the Forge to submit to.
        pickled: whether to load pickles of the jobs.
        **spec: fields of the jobs.
    """

    def __init__(
        self,
        *,
        folder: Path | str | None = None,
        packages: Sequence[str] | str = (),
        client: Client | None = None,
        pickled: bool = False,
        **spec: Unpack[NamedSpec],
    ) -> None:
        self._made = job(folder=folder, packages=packages, client=client, pickled=pickled, **spec)
        self._futures: list[Future[Any]] = []
        self._is_shut = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a job that calls a function; return its future, which waits only.

        Raises:
            RuntimeError: the executor is shut down.
            ClientError: as for a function's own `submit`.
        """
        self._require_open()
        return self._followed(self._made(fn).submit(*args, **kwargs))

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **_: Any,  # noqa: ANN401 - `buffersize` of Python 3.14: all are submitted at once
    ) -> Iterator[R]:
        """Submit a job for each call, or for each `chunksize` of them; return their results.

        Raises:
            RuntimeError: the executor is shut down.
            ClientError: as for a function's own `map`.
        """
        self._require_open()
        ends_at = None if timeout is None else monotonic() + timeout
        columns = [*zip(*zip(*iterables, strict=False), strict=True)]
        per_job = None if chunksize == 1 else chunksize
        jobs = self._made(fn).map(*columns, per_job=per_job) if columns else []
        followed = [self._followed(each) for each in jobs]
        return (
            each.result(None if ends_at is None else max(0.0, ends_at - monotonic()))
            for each in followed
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as Python has it
        """Take no more calls. To cancel futures is to stop waiting: the jobs continue."""
        self._is_shut = True
        if cancel_futures:
            for future in self._futures:
                future.cancel()
        if wait:
            concurrent.futures.wait(self._futures)

    def _require_open(self) -> None:
        if self._is_shut:
            raise RuntimeError("this executor is shut down, and takes no more calls")

    def _followed(self, submitted: Any) -> Future[Any]:  # noqa: ANN401 - a function's job
        future: Future[Any] = submitted.future()
        self._futures.append(future)
        return future
