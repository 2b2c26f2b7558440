"""The typed fields of a job are those that the model checks.

mypy checks the wrong calls below: it fails if one of the errors that they expect is gone.
"""

from __future__ import annotations

from datetime import timedelta
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from forge_client import JobSpec, JobWithCommand
from forge_client.project import request
from forge_client.project.request import TABLES, Capacity, Duration, Request
from forge_client.sdk import spec as typed
from forge_schema.model.spec import KEYS, Option
from pydantic import AfterValidator

if TYPE_CHECKING:
    from forge_client import Client, Job, JobFunction

# What people may write for a type of the model that is more than its values.
WRITTEN: dict[Any, Any] = {
    Duration: typed.Time,
    Capacity: typed.Amount,
    request.Nodes: int | str | None,
    request.Jobs: typed.JobIds | None,
    request.CheckpointName: int | str,
    request.Names: list[str] | str | None,
    str | Literal[False] | None: str | Literal[False] | None,
}


def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _as_typed(hint) for name, hint in hints.items()}


def _as_typed(hint: Any) -> Any:  # noqa: ANN401  any type
    if get_origin(hint) is not Annotated:
        return hint
    kind, *metadata = get_args(hint)
    # Bounds narrow a type, and change none.
    left = [one for one in metadata if not isinstance(one, Option | AfterValidator)]
    return Annotated[(kind, *left)] if left else kind


def _members(hint: Any) -> set[Any]:  # noqa: ANN401  any type
    """Return the types of a union, the abstract ones as the concrete ones, without None."""
    hint = _as_typed(hint)
    found = WRITTEN.get(hint, hint)
    if get_origin(found) is Annotated:
        found = get_args(found)[0]
    parts = get_args(found) if _is_union(found) else (found,)
    if found is not hint or len(parts) > 1:
        return set[Any]().union(*(_members(part) for part in parts))
    return {_concrete(found)} - {NoneType}


def _is_union(hint: Any) -> bool:  # noqa: ANN401  as above
    return get_origin(hint) in {Union, UnionType}


def _concrete(hint: Any) -> Any:  # noqa: ANN401  as above
    origin = str(get_origin(hint))
    for abstract, concrete in (("Mapping", "dict"), ("Sequence", "list")):
        if abstract in origin:
            return f"{concrete}{list(get_args(hint))}"
    return f"{get_origin(hint).__name__}{list(get_args(hint))}" if get_args(hint) else hint


def test_the_typed_fields_are_those_of_the_model() -> None:
    fields = _hints(Request)
    for table, model in TABLES.items():
        del fields[table]
        fields |= _hints(model)
    hints = _hints(JobWithCommand)
    assert hints.keys() == fields.keys(), f"{hints.keys() ^ fields.keys()} in {typed.__file__}"
    command = hints.pop("command")
    assert {str, type(None)} < set(get_args(command))
    odd = {
        name: (_members(hint), _members(fields[name]))
        for name, hint in hints.items()
        if _members(hint) != _members(fields[name])
    }
    assert odd == {}


def test_the_typed_changes_are_those_that_a_waiting_job_takes() -> None:
    changeable = {key.name for key in KEYS.values() if key.changes and key.name not in TABLES}
    wanted = "ChangedSpec has the fields whose Option has changes=True, and no other"
    assert changeable == typed.ChangedSpec.__annotations__.keys(), wanted


def test_a_field_of_the_model_takes_every_type_that_is_written() -> None:
    for text in ("2h", "90s"):
        assert Request().changed({"timeout": text, "no_progress": 3}).timeout
    assert Request().changed({"timeout": timedelta(hours=2)}).timeout == 7200
    given = {"nodes": "2..8", "memory": "2GiB", "after": [7], "cpus": 0.5}
    assert Request().changed(given).resources.memory == 2 << 30
    assert Request().changed({"from_checkpoint": 7}).from_checkpoint == {"job_id": 7}


def well_typed(client: Client, train: JobFunction[[float, int], str]) -> Job:
    """Show that what is right passes the type checker."""
    train.map([{"rate": 0.1, "epochs": 3}])
    text: str = train.map([0.1, 1], range(2), per_job=2)[0].result()
    client.job(text)
    fields: JobSpec = {"name": "x", "gpus": 1, "timeout": "2h", "env": {"A": "b"}, "nodes": "2..8"}
    client.submit_many([{"command": "ls", "memory": "2GiB"}], folder=".")
    client.limit_queue("night", max_gpus=None)
    return client.submit(".", ["ls"], **fields)


def wrongly_typed(client: Client, train: JobFunction[[float, int], str]) -> None:
    """Show that what is wrong does not."""
    train.map(["x"], [3])  # type: ignore[list-item]
    train.map([0.1], ["x"], per_job=2)  # type: ignore[list-item]
    number: int = train.map([0.1], [3])[0].result()  # type: ignore[assignment]
    client.limit_queue("night", max_gpus=number)
    client.submit(".", "ls", gpu=1)  # type: ignore[call-arg]
    client.submit(".", "ls", gpus="one")  # type: ignore[arg-type]
    client.submit_many([{"cmd": "ls"}])  # type: ignore[typeddict-unknown-key]
    client.limit_queue("night", gpus=1)  # type: ignore[call-arg]
