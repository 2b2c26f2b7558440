"""Functions as jobs: `@forge.job` on a function, and what it returns or raises.

A function, its arguments and what it returns travel as pickles. A pickle can run code where it is
loaded: see docs/python.md for who has to trust whom.
"""

import base64
import functools
import hashlib
import json
import linecache
import pickle
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from sysconfig import get_path
from types import ModuleType
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from forge_schema.model.job import JobStatus

from forge_client.client import Client
from forge_client.errors import ClientError
from forge_client.project.bundle import Listing, scan
from forge_client.project.forge_toml import FILE, Project
from forge_client.sdk import function_runner as runner
from forge_client.sdk.job import Job, JobFailed
from forge_client.sdk.sending import Parcel, packed, requests
from forge_client.sdk.spec import NamedSpec

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

FOLDER = ".forge-function"
MARKS = (FILE, "pyproject.toml")
INSTALLED = {"site-packages", "dist-packages"}
Call = tuple[tuple[Any, ...], dict[str, Any]]


class FunctionJob(Job, Generic[T]):
    """A job that calls a function; its result is what the function returned.

    That is loaded from a pickle unless it is plain JSON, which can run code of the job here.
    """

    def result(self, timeout: float | None = None) -> T:
        """Wait until the function has returned, and return what it did.

        Args:
            timeout: how long to wait, in seconds; None means without limit.

        Raises:
            Exception: what the function raised, with a `JobFailed` as its cause that has the
                traceback of the job.
            JobFailed: the job failed otherwise, or the exception cannot be loaded here.
            TimeoutError: it has not ended in time. The job continues.
        """
        value: T = super().result(timeout)
        return value

    def __await__(self) -> Generator[Any, None, T]:
        return super().__await__()

    def _outcome(self, status: JobStatus) -> Any:  # noqa: ANN401 - whatever the function returned
        found = self.found()
        if status.state == "succeeded":
            return self._returned(found)
        said = found and found.get(runner.RAISED)
        if not isinstance(said, Mapping):
            raise self._failure(status)
        failed = JobFailed(status, str(said["traceback"]).rstrip())
        try:
            error = pickle.loads(base64.b64decode(said["pickled"]))  # noqa: S301 - see above
        except Exception:  # noqa: BLE001 - its class may be missing here, or it was not pickled
            raise failed from None
        raise error from failed

    def _returned(self, found: dict[str, Any] | None) -> Any:  # noqa: ANN401 - as above
        match found:
            case None:
                raise ClientError(
                    f"what job {self.id} returned was not stored",
                    hint=f"`forge logs {self.id}` says why",
                    code="no_result",
                )
            case {runner.RETURNED: value} if len(found) == 1:
                return value
            case {runner.PICKLED: text} if len(found) == 1:
                return self._unpickled(base64.b64decode(text))
            case {runner.STORED: {"artifact": path, "sha256": digest}} if len(found) == 1:
                return self._unpickled(self._stored(path, digest))
            case _:
                return found

    def _stored(self, path: str, digest: str) -> bytes:
        artifact = next(one for one in self.artifacts() if one.path == path)
        with tempfile.TemporaryDirectory(prefix="forge-returned-") as folder:
            place = Path(folder) / path
            self.backend.download(artifact, place)
            pickled = place.read_bytes()
        if hashlib.sha256(pickled).hexdigest() != digest:
            raise ClientError(f"what job {self.id} returned was changed in the store")
        return pickled

    def _unpickled(self, pickled: bytes) -> Any:  # noqa: ANN401 - as above
        try:
            return pickle.loads(pickled)  # noqa: S301 - see above
        except ImportError as error:
            raise ClientError(
                f"what job {self.id} returned cannot be loaded here: {error}",
                hint="install what it needs, or return numbers, text, lists and dicts",
                code="result_unreadable",
            ) from error


class JobFunction(Generic[P, R]):
    """A function that can be submitted as a job; calling it runs it here."""

    def __init__(
        self,
        function: Callable[P, R],
        spec: NamedSpec,
        *,
        folder: Path | str | None = None,
        packages: Sequence[str] = (),
        client: Client | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.__name__ = function.__name__
        self.function = function
        self.spec = spec
        self._folder = folder
        self._packages = packages
        self._client = client

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # In a job, which may lack this package, it is the bare function.
        return functools.partial, (self.function,)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> FunctionJob[R]:
        """Submit a job that calls the function with these arguments.

        Raises:
            ClientError: the function or an argument cannot be pickled, or as for `Client.submit`.
        """
        return self._submit([(args, kwargs)])[0]

    def map(self, *arguments: Iterable[Any]) -> list[FunctionJob[R]]:
        """Submit a job for each value, in one transaction; several iterables go side by side.

        Raises:
            ClientError: as for `submit`.
        """
        return self._submit([(given, {}) for given in zip(*arguments, strict=True)])

    def options(self, *, client: Client | None = None, **spec: Unpack[NamedSpec]) -> Self:
        """Return the function with other fields of a job, or on another Forge."""
        changed: NamedSpec = {**self.spec, **spec}
        return type(self)(
            self.function,
            changed,
            folder=self._folder,
            packages=self._packages,
            client=client or self._client,
        )

    def job(self, job_id: int) -> FunctionJob[R]:
        """Return a job of this function that was submitted before.

        Raises:
            ClientError: there is no such job.
        """
        backend = self._connected().job(job_id).backend
        return FunctionJob(backend, job_id)

    def _connected(self) -> Client:
        return self._client or _default_client()

    def _submit(self, calls: Sequence[Call]) -> list[FunctionJob[R]]:
        client = self._connected()
        root, import_from = project_of(self.function, self._folder)
        with tempfile.TemporaryDirectory(prefix="forge-function-") as staged:
            stage(Path(staged) / FOLDER, self.function, calls, import_from, self._packages)
            project = Project.read(root) if root else Project()
            parcel = _with_project(project, root, scan(Path(staged)))
            jobs = requests(project, [self._fields(number) for number in range(len(calls))])
            ids = client.sender.submit(parcel, jobs)
        return [FunctionJob(client.backend, job_id) for job_id in ids]

    def _fields(self, number: int) -> dict[str, Any]:
        listed = {"requirements": f"{FOLDER}/requirements.txt"} if self._packages else {}
        key = self.spec.get("idempotency_key")
        return {
            "name": self.function.__name__,
            **listed,
            **self.spec,
            "idempotency_key": f"{key}:{number}" if key and number else key,
            "command": ["python3", f"{FOLDER}/run.py", str(number)],
        }


@cache
def _default_client() -> Client:
    return Client()


def stage(
    folder: Path,
    function: Callable[..., Any],
    calls: Sequence[Call],
    import_from: Sequence[str],
    packages: Sequence[str],
) -> None:
    """Write a function, its calls and what runs them to a folder.

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
    for number, call in enumerate(calls):
        what = f"an argument of {function.__name__}()"
        (folder / f"{number}.pkl").write_bytes(_pickled(call, what, beside=function))
    if packages:
        (folder / "requirements.txt").write_text("\n".join(packages) + "\n", encoding="utf-8")


def _pickled(value: object, what: str, *, beside: Callable[..., Any] | None = None) -> bytes:
    """Pickle something, with all that the function's own module defines.

    That module imports this package, which the job need not have.
    """
    import cloudpickle  # noqa: PLC0415 - as above

    function: Any = beside or value
    module = sys.modules.get(function.__module__)
    registered = cloudpickle.list_registry_pickle_by_value()
    own = module if module and module.__name__ not in {"__main__", *registered} else None
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


def _with_project(project: Project, root: Path | None, staged: Listing) -> Parcel:
    if root is None:
        return Parcel(staged)
    parcel = packed(project, root)
    theirs = (one for one in parcel.listing.entries if one.name.split("/")[0] != FOLDER)
    listing = Listing(parcel.listing.root, (*theirs, *staged.entries))
    return Parcel(listing, parcel.limit)


@overload
def job(function: Callable[P, R]) -> JobFunction[P, R]: ...
@overload
def job(
    *,
    folder: Path | str | None = None,
    packages: Sequence[str] = (),
    client: Client | None = None,
    **spec: Unpack[NamedSpec],
) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...
def job(
    function: Callable[P, R] | None = None,
    *,
    folder: Path | str | None = None,
    packages: Sequence[str] = (),
    client: Client | None = None,
    **spec: Unpack[NamedSpec],
) -> JobFunction[P, R] | Callable[[Callable[P, R]], JobFunction[P, R]]:
    """Make a function that can be submitted as a job: `@job` or `@job(gpus=1)`.

    Args:
        function: the function.
        folder: the project to upload with it; else that of its module, none for a script or a
            notebook.
        packages: requirements to install first, such as `["numpy>=2"]`; else the project's.
        client: the Forge to submit to; else a `Client()`, made at the first submit.
        **spec: fields of the job, as `Client.submit` takes them.
    """

    def made(function: Callable[P, R]) -> JobFunction[P, R]:
        return JobFunction(function, spec, folder=folder, packages=packages, client=client)

    return made if function is None else made(function)
