"""A function's job: the files that go there, and what the function returned or raised.

A function and its arguments travel as pickles, and so does what it returns if it is not plain. A
pickle can run code where it is loaded: one of a job is loaded only if the function says so. See
docs/python.md for who has to trust whom.
"""

import base64
import builtins
import hashlib
import inspect
import json
import linecache
import pickle
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from sysconfig import get_path
from threading import RLock
from types import ModuleType
from typing import Any, Generic, TypeVar

from forge_schema.model.job import JobStatus
from forge_schema.model.states import StateWord

from forge_client.backend import Backend
from forge_client.errors import ClientError, InvalidInput
from forge_client.project import FILE, task_runner
from forge_client.project.bundle import scan
from forge_client.project.forge_toml import Project
from forge_client.project.matrix import Scalar
from forge_client.project.submit import Parcel
from forge_client.project.tasks import with_files
from forge_client.sdk import function_runner as runner
from forge_client.sdk.job import Job, JobFailed, pickled
from forge_client.sdk.sending import compared_by, packed
from forge_client.sdk.spec import Time

T = TypeVar("T")
FOLDER = ".forge-function"
MARKS = (FILE, "pyproject.toml")
INSTALLED = {"site-packages", "dist-packages"}
Call = tuple[tuple[Any, ...], dict[str, Any]]
# Annotations of a parameter that takes a dict itself, and of one that cannot.
TABLES, PLAIN = ("dict", "mapping"), ("int", "float", "str", "bool")
_registering = RLock()


def stage(  # noqa: PLR0917 - all that a job brings
    folder: Path,
    function: Callable[..., Any],
    calls: Sequence[Call | Sequence[Call]],
    import_from: Sequence[str],
    packages: Sequence[str],
    tasks: Sequence[Sequence[Mapping[str, Any]]] = (),
) -> None:
    """Write a function, its calls and what runs them to a folder.

    With `tasks`, each job has several calls: these are their names and parameters.

    Raises:
        ClientError: the function or an argument cannot be pickled.
    """
    # It takes a while, and only functions need it.
    import cloudpickle  # noqa: PLC0415

    beside = folder / "cloudpickle"
    beside.mkdir(parents=True)
    for source in Path(cloudpickle.__file__).parent.glob("*.py"):
        (beside / source.name).write_bytes(source.read_bytes())
    (folder / "run.py").write_bytes(Path(runner.__file__).read_bytes())
    code = getattr(function, "__code__", None)
    file = code.co_filename if code else ""
    about = {
        "name": function.__name__,
        "file": file,
        "source": linecache.getlines(file),
        "python": list(sys.version_info[:2]),
        "import_from": list(import_from),
    }
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "function.pkl").write_bytes(_pickled(function, f"{function.__name__}()"))
    if tasks:
        (folder / f"{runner.TASKS}.py").write_bytes(Path(task_runner.__file__).read_bytes())
    for number, (group, listed) in enumerate(zip_longest(calls, tasks)):
        what = f"an argument of {function.__name__}()"
        (folder / f"{number}.pkl").write_bytes(_pickled(group, what, beside=function))
        if listed is not None:
            (folder / f"{number}.json").write_text(json.dumps(listed), encoding="utf-8")
    if packages:
        (folder / "requirements.txt").write_text("\n".join(packages) + "\n", encoding="utf-8")


def _pickled(value: object, what: str, *, beside: Callable[..., Any] | None = None) -> bytes:
    """Pickle something, with all that the function's own module defines.

    That module imports this package, which the job need not have.
    """
    import cloudpickle  # noqa: PLC0415 - as above

    function: Any = beside or value
    module = sys.modules.get(function.__module__)
    origin = _imported_from(module)
    # What is registered holds for all threads.
    with _registering:
        known = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
        mine = module and module.__name__ not in known and origin and not _is_installed(origin)
        own = module if mine else None
        if own:
            cloudpickle.register_pickle_by_value(own)
        try:
            pickled: bytes = cloudpickle.dumps(value)
        except Exception as error:
            raise ClientError(
                f"{what} cannot be sent to a job: {error}",
                hint="open files, connections and locks inside the function, not outside of it",
                code="not_picklable",
            ) from error
        finally:
            if own:
                cloudpickle.unregister_pickle_by_value(own)
    return pickled


def project_of(
    function: Callable[..., Any], folder: Path | str | None
) -> tuple[Path | None, list[str]]:
    """Return the folder to upload with a function, None for none, and where in it to import from.

    It is the nearest one with a forge.toml or a pyproject.toml, of those above what the function's
    module is imported from; else the latter. A script or a notebook has none, nor has an installed
    package.
    """
    origin = _imported_from(sys.modules.get(function.__module__))
    if folder is not None:
        root = Path(folder).resolve()
        inside = origin is not None and origin.is_relative_to(root)
        return root, [origin.relative_to(root).as_posix() if origin and inside else "."]
    main = function.__module__ == "__main__"
    if main or origin is None or origin == Path.home() or _is_installed(origin):
        return None, []
    above = (place for place in (origin, *origin.parents) if _is_project(place))
    root = next(above, origin)
    return root, [origin.relative_to(root).as_posix()]


def _is_installed(origin: Path) -> bool:
    library = Path(get_path("stdlib")).resolve()
    return bool(INSTALLED & set(origin.parts)) or origin.is_relative_to(library)


def _is_project(place: Path) -> bool:
    return any((place / mark).is_file() for mark in MARKS)


def _imported_from(module: ModuleType | None) -> Path | None:
    """Return the folder from which a module is imported; None if it has no file."""
    if module is None or not getattr(module, "__file__", None):
        return None
    path = Path(str(module.__file__)).resolve()
    depth = 0 if module.__name__ == "__main__" else module.__name__.count(".")
    return path.parents[depth + (path.stem == "__init__")]


def with_project(project: Project, root: Path | None, staged: Path) -> Parcel:
    """Return the files of a project, if there is one, with those of a function."""
    if root is None:
        return Parcel(staged, scan(staged))
    return with_files(packed(project, root, [project.request()]), staged)


def called(function: Callable[..., Any], values: tuple[Any, ...]) -> Call:
    """Return a call with these values. A dict alone gives the arguments by their names.

    Raises:
        ClientError: a dict names no argument, and can be none.
    """
    if len(values) > 1 or not isinstance(values[0], Mapping):
        return values, {}
    signature, named = inspect.signature(function), values[0]
    first = next(iter(signature.parameters.values()), None)
    kind = inspect.formatannotation(first.annotation).strip("'").lower() if first else ""
    if any(word in kind for word in TABLES):
        return values, {}
    keyword = first is None or first.kind in {first.KEYWORD_ONLY, first.VAR_KEYWORD}
    if keyword or any(name in signature.parameters for name in named):
        return (), {**named}
    if kind in PLAIN:
        raise InvalidInput(
            f"{function.__name__}.map: {named!r} has no name of an argument",
            hint=f"it is {function.__name__}{signature}; a dict gives arguments by their names",
        )
    return values, {}


def parameters(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    own: Mapping[str, Scalar],
) -> dict[str, Scalar]:
    """Return the job's own parameters and those of a call.

    Defaults are among them, so that calls with and without an argument compare.
    """
    return compared_by(_given(function, args, kwargs), own=own)


def _given(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        gathered = signature.parameters[name].kind == inspect.Parameter.VAR_KEYWORD
        yield from value.items() if gathered else [(name, value)]


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
            records = (self.job.found() or {}).get(task_runner.RECORDS) or []
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
