"""Run one call of a pickled function inside a job.

It travels in the job's bundle, beside cloudpickle: the job's Python may have nothing of Forge, and
may be older than the one that pickled the function, which this then says.
"""

import base64
import hashlib
import json
import linecache
import os
import pickle
import sys
import traceback
from math import isfinite
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as short as it can be
# What is larger becomes an artifact.
MOST_IN_A_ROW = 64 << 10
# The file beside this one that runs many calls; a project may have a module of its own name.
TASKS = "forge_task_runner"
DEPTH = 32
ARTIFACT = "forge-returned.pkl"
# What cloudpickle calls the file of code that it brings.
NAMELESS = "<dynamic-code>"
# A result with one of these keys alone is how a value travels, and no value of its own.
RETURNED, PICKLED, STORED, RAISED = "returned", "pickled", "stored", "raised"
MARKS = (RETURNED, PICKLED, STORED, RAISED)


def main() -> None:
    """Call the function with the arguments of the number on the command line."""
    with open(os.path.join(HERE, "about.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        about = json.load(file)
    _check_version(about)
    # The code has lost its file on the way; with the lines, a traceback shows them.
    lines = about["source"]
    linecache.cache[NAMELESS] = (sum(map(len, lines)), None, lines, NAMELESS)
    # First this folder, which has cloudpickle; a project may have another one.
    project = [os.path.abspath(path) for path in about["import_from"]]  # noqa: PTH100
    sys.path[:0] = [HERE, *project]
    try:
        function = _loaded("function.pkl")
        calls = _loaded(sys.argv[1] + ".pkl")
        if os.path.exists(os.path.join(HERE, sys.argv[1] + ".json")):  # noqa: PTH110, PTH118
            _run_all(function, calls, about["file"])
        given, named = calls
        value = function(*given, **named)
    except Exception as error:  # noqa: BLE001 - whatever the function raises
        # The first frame is this one.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        result = raised(error, about["file"])
        print(result[RAISED]["traceback"], file=sys.stderr, end="")  # noqa: T201 - the job's log
        _write(result)
        sys.exit(1)
    _write(travelling(value))


def _run_all(function: Any, calls: "list[Any]", file: str) -> None:  # noqa: ANN401 - any function
    """Make the calls as the tasks of this job, and exit."""
    import importlib  # noqa: PLC0415 - only these jobs need it

    global MOST_IN_A_ROW  # noqa: PLW0603 - the job's one result has all of theirs
    runner = importlib.import_module(TASKS)
    MOST_IN_A_ROW = min(MOST_IN_A_ROW, max(1024, runner.MOST_BYTES // len(calls)))
    with open(os.path.join(HERE, sys.argv[1] + ".json"), encoding="utf-8") as listed:  # noqa: PTH118, PTH123
        tasks = json.load(listed)

    def call(number: int) -> "dict[str, Any]":
        given, named = calls[number]
        try:
            return travelling(function(*given, **named))
        except Exception as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            result = raised(error, file)
            failure = result[RAISED]
            print(failure["traceback"], file=sys.stderr, end="")  # noqa: T201 - the job's log
            why = failure["traceback"].strip().rpartition("\n")[2] or failure["type"]
            raise runner.TaskFailed(why, result) from error

    runner.run(tasks, call)


def _check_version(about: "dict[str, Any]") -> None:
    here = list(sys.version_info[:2])
    if here != about["python"]:
        theirs, ours = (".".join(map(str, version)) for version in (about["python"], here))
        message = (
            f"{about['name']}() was pickled by Python {theirs}, but this job's Python is {ours}:"
            f" give the job an image with Python {theirs}, such as image='python:{theirs}-slim',"
            f" or submit it from Python {ours}"
        )
        print(message, file=sys.stderr)  # noqa: T201 - the job's log
        _write({RAISED: {"type": "RuntimeError", "message": message, "traceback": message}})
        sys.exit(1)


def _loaded(name: str) -> Any:  # noqa: ANN401 - any object
    with open(os.path.join(HERE, name), "rb") as file:  # noqa: PTH118, PTH123
        return pickle.load(file)  # noqa: S301 - the submitter's own


def _write(result: "dict[str, Any]") -> None:
    with open(os.environ["FORGE_RESULT_FILE"], "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(result, file)


def travelling(value: Any) -> "dict[str, Any]":  # noqa: ANN401 - any object
    """Return a value as the job's result: JSON if it is the same as JSON, else pickled."""
    if same_as_json(value):
        plain = type(value) is dict and not (len(value) == 1 and set(value) <= set(MARKS))
        result = value if plain else {RETURNED: value}
        if len(json.dumps(result)) <= MOST_IN_A_ROW:
            return result
    import cloudpickle  # noqa: PLC0415 - it lies beside this file

    pickled = cloudpickle.dumps(value)
    text = base64.b64encode(pickled).decode()
    if len(text) <= MOST_IN_A_ROW:
        return {PICKLED: text}
    with open(os.path.join(os.environ["FORGE_OUTPUT_DIR"], ARTIFACT), "wb") as file:  # noqa: PTH118, PTH123
        file.write(pickled)
    return {STORED: {"artifact": ARTIFACT, "sha256": hashlib.sha256(pickled).hexdigest()}}


def same_as_json(value: Any, depth: int = DEPTH) -> bool:  # noqa: ANN401 - any object
    """Tell whether a value that is stored as JSON is read as the same value, of the same type."""
    kind = type(value)
    if depth and kind is dict:
        return all(_text(key) and same_as_json(item, depth - 1) for key, item in value.items())
    if depth and kind is list:
        return all(same_as_json(item, depth - 1) for item in value)
    if kind is float:
        # Postgres writes 1e+16 as an integer, and has no negative zero.
        return isfinite(value) and "e+" not in repr(value) and repr(value) != "-0.0"
    return value is None or kind in (bool, int) or _text(value)


def _text(value: Any) -> bool:  # noqa: ANN401 - any object
    if type(value) is not str or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def raised(error: Exception, file: str) -> "dict[str, Any]":
    """Return an exception from a file as the job's result; pickled if it can be."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    text = text.replace(NAMELESS, file)
    description = {
        "type": type(error).__name__,
        "message": _storable(str(error)[:1000]),
        "traceback": _storable(text[-MOST_IN_A_ROW // 4 :]),
    }
    args = list(error.args)
    plain = type(error).__module__ == "builtins" and same_as_json(args)
    if plain and len(json.dumps(args)) <= MOST_IN_A_ROW // 4:
        return {RAISED: dict(description, builtin=True, args=args)}
    try:
        import cloudpickle  # noqa: PLC0415 - as above

        pickled = base64.b64encode(cloudpickle.dumps(error)).decode()
    except Exception:  # noqa: BLE001 - it may hold anything
        return {RAISED: description}
    return {
        RAISED: dict(description, pickled=pickled) if len(pickled) <= MOST_IN_A_ROW else description
    }


def _storable(text: str) -> str:
    """Return text without what the database refuses: lone surrogates and NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


if __name__ == "__main__":
    main()
