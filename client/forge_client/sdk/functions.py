"""Functions as jobs: `@forge.job` on a function, and what it returns or raises.

A function and its arguments travel as pickles, and so does what it returns if it is not plain. A
pickle can run code where it is loaded: one of a job is loaded only if the function says so. See
docs/python.md for who has to trust whom.
"""

import base64
import builtins
import functools
import hashlib
import inspect
import pickle
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from forge_schema.model.job import JobStatus
from forge_schema.model.states import StateWord

from forge_client.backend import Backend
from forge_client.errors import ClientError, InvalidInput
from forge_client.project.forge_toml import Project
from forge_client.project.matrix import Scalar
from forge_client.project.request import check_fields, several
from forge_client.project.task_runner import RECORDS
from forge_client.project.tasks import packs
from forge_client.sdk import function_runner as runner
from forge_client.sdk.arguments import in_python
from forge_client.sdk.client import Client
from forge_client.sdk.function_files import (
    FOLDER,
    Call,
    called,
    parameters,
    project_of,
    stage,
    with_project,
)
from forge_client.sdk.job import RUN, Job, JobFailed, pickled
from forge_client.sdk.sending import requests
from forge_client.sdk.spec import NamedSpec, Time

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class FunctionJob(Job, Generic[T]):
    """A job that calls a function; its result is what the function returned.

    If that is not plain JSON, it is a pickle, which can run code of the job here. It is loaded only
    if the function was made with `pickled=True`.
    """

    def __init__(self, backend: Backend, job_id: int, *, pickled: bool = False) -> None:
        super().__init__(backend, job_id)
        self._loads_pickles = pickled

    def result(self, timeout: Time | None = None) -> T:
        """Wait until the function has returned, and return what it did.

        Args:
            timeout: how long to wait, such as `"1m"`, or in seconds; None means without limit.

        Raises:
            Exception: what the function raised, with a `JobFailed` as its cause that has the
                traceback of the job.
            JobFailed: the job failed otherwise, or the exception cannot be made here.
            ClientError: what it returned is a pickle, and the function does not say `pickled=True`.
            TimeoutError: it has not ended in time. The job continues.
        """
        value: T = super().result(timeout)
        return value

    def __await__(self) -> Generator[Any, None, T]:
        return super().__await__()

    def _outcome(self, status: JobStatus) -> Any:  # noqa: ANN401 - whatever the function returned
        document = self.found()
        if status.state == "succeeded":
            return self._returned(document)
        description = document and document.get(runner.RAISED)
        # What a cancelled job raised was of an attempt before.
        if status.state == "cancelled" or not isinstance(description, Mapping):
            raise self._failure(status)
        failed = JobFailed(status, str(description.get("traceback", "")).rstrip())
        error = self._raised(description)
        if error is None:
            raise failed
        raise error from failed

    def _raised(self, description: Mapping[str, Any]) -> Exception | None:
        """Return the exception that the function raised; None if it cannot be made here."""
        if description.get("builtin"):
            return _builtin(description.get("type"), description.get("args"))
        if not self._loads_pickles:
            return None
        try:
            error = pickle.loads(base64.b64decode(description["pickled"]))  # noqa: S301 - see above
        except Exception:  # noqa: BLE001 - its class may be missing here, or it was not pickled
            return None
        return error if isinstance(error, Exception) else None

    def _returned(self, document: dict[str, Any] | None) -> Any:  # noqa: ANN401 - as above
        match document:
            case None:
                raise ClientError(
                    f"what job {self.id} returned was not stored",
                    hint=f"`forge logs {self.id}` says why",
                    code="no_result",
                )
            case {runner.RETURNED: value} if len(document) == 1:
                return value
            case {runner.PICKLED: text} if len(document) == 1:
                return self._unpickled(lambda: base64.b64decode(text))
            case {runner.STORED: {"sha256": digest}} if len(document) == 1:
                return self._unpickled(lambda: self._stored(digest))
            case _:
                return document

    def _stored(self, digest: str) -> bytes:
        artifact = next((file for file in self.artifacts() if file.path == self._artifact), None)
        if artifact is None:
            raise ClientError(
                f"what job {self.id} returned is not stored any more", code="no_result"
            )
        with tempfile.TemporaryDirectory(prefix="forge-returned-") as folder:
            place = Path(folder) / "returned"
            self.backend.download(artifact, place)
            pickled = place.read_bytes()
        if hashlib.sha256(pickled).hexdigest() != digest:
            raise ClientError(f"what job {self.id} returned was changed in the store")
        return pickled

    @property
    def _artifact(self) -> str:
        """The path of the file that has what it returned."""
        return runner.ARTIFACT

    def _unpickled(self, read: Callable[[], bytes]) -> Any:  # noqa: ANN401 - as above
        if not self._loads_pickles:
            raise pickled(self.id)
        try:
            return pickle.loads(read())  # noqa: S301 - see above
        except ClientError:
            raise
        except Exception as error:  # the bytes may be anything, and do anything
            why = str(error) or type(error).__name__
            raise ClientError(
                f"what job {self.id} returned cannot be loaded here: {why}",
                hint="install what it needs, or return numbers, text, lists and dicts",
                code="result_unreadable",
            ) from error


class JobTasks:
    """The records of the tasks of one job, which are read once it has ended."""

    def __init__(self, backend: Backend, job_id: int) -> None:
        self.job = Job(backend, job_id)
        self._records: list[Mapping[str, Any]] | None = None

    def record(self, number: int) -> Mapping[str, Any]:
        """Return the record of a task; it is without a state if the task has not ended."""
        records = self._records
        if records is None:
            ended = self.job.done()
            records = (self.job.found() or {}).get(RECORDS) or []
            self._records = records if ended else None
        return records[number] if number < len(records) else {}


class FunctionTask(FunctionJob[T]):
    """One of the calls that a job makes, one after another: its `number` in the job.

    `result()` waits for the whole job. All else is about the job.
    """

    def __init__(self, tasks: JobTasks, number: int, *, pickled: bool = False) -> None:
        super().__init__(tasks.job.backend, tasks.job.id, pickled=pickled)
        self.number = number
        self._tasks = tasks

    def __repr__(self) -> str:
        return f"Task({self.id}.{self.number})"

    def __hash__(self) -> int:
        return hash((self.id, self.number))

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, FunctionTask) and other.number == self.number
        return same and super().__eq__(other)

    def found(self, *, rank: int = 0) -> dict[str, Any] | None:  # noqa: ARG002 - a job's has ranks
        """Return the record's result, without waiting; None if the call has not ended."""
        result: dict[str, Any] | None = self._tasks.record(self.number).get("result")
        return result

    def _outcome(self, status: JobStatus) -> Any:  # noqa: ANN401 - whatever the function returned
        # The job fails if one of its tasks does, and the others have their results.
        state = self._tasks.record(self.number).get("state")
        if state is None:
            raise self._failure(status)
        ended = status.model_copy(update={"state": StateWord(state)})
        return super()._outcome(ended)

    @property
    def _artifact(self) -> str:
        return f"task-{self.number}/{runner.ARTIFACT}"


def _builtin(name: object, args: object) -> Exception | None:
    """Make an exception that Python itself has, from plain arguments."""
    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, Exception) and isinstance(args, list)):
        return None
    try:
        return kind(*args)
    except Exception:  # noqa: BLE001 - the arguments may not be its own
        return None


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
