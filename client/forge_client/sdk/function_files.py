"""The files of a function's job: the function, its calls, what runs them, and its project."""

import inspect
import json
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from sysconfig import get_path
from threading import RLock
from types import ModuleType
from typing import Any

from forge_client.errors import ClientError, InvalidInput
from forge_client.project import FILE, task_runner
from forge_client.project.bundle import scan
from forge_client.project.forge_toml import Project
from forge_client.project.matrix import Scalar
from forge_client.project.submit import Parcel
from forge_client.project.tasks import with_files
from forge_client.sdk import function_runner as runner
from forge_client.sdk.sending import compared_by, packed

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
