"""Every file is in a room, and every noun has one class."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import get_annotations, getmembers, isroutine
from itertools import combinations
from pathlib import Path
from pkgutil import walk_packages
from typing import TypeGuard

from forge_schema.service.admin import Admin
from forge_schema.service.findings import Findings
from forge_schema.service.notifications import Notifying
from forge_schema.service.service import Service
from forge_schema.service.verb import declared_in
from pydantic import BaseModel
from sqlmodel import SQLModel

ROOT = Path(__file__).parents[3]
PACKAGES = ("forge_schema", "forge_functions", "forge_worker", "forge_client")
FOLDERS = ("schema", "lambda", "worker", "client")
MOST_MODULES = 15
SKIPPED = {"versions", "integrations"}
LEAST_FIELDS = 4
SHARED = 0.8
# Pairs that stay two: a writer's bounds or a person's units are not a reader's.
APART = {
    # What a worker may write is bounded; whatever is stored is read, and says of which attempt.
    "schema.model.attempt_records.ArtifactRecord = schema.model.stored.Artifact",
    "schema.model.attempt_records.Tested = schema.model.results.JobTest",
    # An end may say anything; it is cut to the message's bounds as it is sent.
    "schema.model.lease.End = schema.protocol.messages.Ending",
    # A form has what was typed, which need not be a number.
    "functions.dashboard.routes.access.teams.LimitsForm = schema.model.admin._OfOwner",
    # A worker finds a lease's standing by its fence, which a message cannot be a key of.
    "schema.model.lease.Renewal = schema.protocol.answers.Renewed",
}
# Made from the fields of a job when it is imported: no second list of them.
MADE = {"client.project.request._Plain"}
# Of a job as submitted: the queue's model, and the same as the SDK's keyword arguments.
TWICE = {"JobSpec"}


def _classes() -> dict[type, set[str]]:
    """Return the fields that each model and dataclass of ours adds to those it inherits."""
    found: dict[type, set[str]] = {}
    for package in PACKAGES:
        for info in walk_packages(import_module(package).__path__, f"{package}."):
            # What integrates a library needs it installed.
            if not info.name.endswith(".env") and not SKIPPED & set(info.name.split(".")):
                module = import_module(info.name)
                for kind in vars(module).values():
                    if _is_written_in(kind, info.name):
                        found[kind] = _own_fields(kind)
    return found


def _is_written_in(kind: object, module: str) -> TypeGuard[type]:
    return isinstance(kind, type) and kind.__module__ == module and _name(kind) not in MADE


def _own_fields(kind: type) -> set[str]:
    if issubclass(kind, SQLModel):
        return set()
    if issubclass(kind, BaseModel):
        known = set(kind.model_fields)
    elif is_dataclass(kind):
        known = {field.name for field in fields(kind)}
    else:
        return set()
    return known & get_annotations(kind).keys()


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".replace("forge_", "")


def _same(one: set[str], other: set[str]) -> bool:
    fewest, most = sorted((len(one), len(other)))
    return fewest >= LEAST_FIELDS and len(one & other) >= SHARED * most


def test_every_noun_is_one_class() -> None:
    classes = _classes()
    pairs = {
        " = ".join(sorted((_name(one), _name(other))))
        for one, other in combinations(classes, 2)
        if _same(classes[one], classes[other])
    }
    assert pairs == APART, "make the two one class, or say in APART why they stay two"


def test_the_page_how_forge_works_names_every_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [
        f"../{room.relative_to(ROOT)}"
        for folder, package in zip(FOLDERS, PACKAGES, strict=True)
        for room in (ROOT / folder / package).iterdir()
        if room.is_dir() and room.name != "__pycache__"
        # A room that is gone may leave what Python compiled.
        if {path.name for path in room.iterdir()} - {"__pycache__"}
    ]
    unnamed = [room for room in rooms if f"]({room})" not in page]
    assert unnamed == [], "link these in docs/architecture.md"


def test_no_folder_holds_more_than_fifteen_modules() -> None:
    tops = (*FOLDERS, "tests")
    modules = [
        path for top in tops for path in (ROOT / top).rglob("*.py") if path.stem != "__init__"
    ]
    rooms = {path.parent for path in modules if path.parent.name != "versions"}
    counts = {str(room.relative_to(ROOT)): sum(m.parent == room for m in modules) for room in rooms}
    assert counts
    wanted = "merge modules that are read together, or make a room of some"
    assert {room: count for room, count in counts.items() if count > MOST_MODULES} == {}, wanted


def test_a_verb_is_named_in_five_files() -> None:
    """The statement, the queue, the service, the SDK and the command; and where that is."""
    named = re.compile(r"def preempt\b|\.preempt\b|[\"/]preempt[\"/]|\bpreempt:|:preempt\b")
    files = {
        path.relative_to(ROOT).as_posix()
        for folder in ("schema", "lambda", "client")
        for path in (ROOT / folder).rglob("*.py")
        # Pages have buttons and endpoints of their own.
        if "dashboard" not in path.parts and named.search(path.read_text(encoding="utf-8"))
    }
    # A sweeper preempts by a budget, which has that word too.
    files -= {"schema/forge_schema/sweeper/tick.py", "schema/forge_schema/model/admin.py"}
    assert files == {
        "schema/forge_schema/queue/queue.py",
        "schema/forge_schema/service/acting.py",
        "client/forge_client/sdk/job.py",
        "client/forge_client/cli/jobs/cancel_retry_preempt.py",
        "client/forge_client/cli/commands.py",
    }


def test_every_method_of_the_service_is_a_verb_or_made_of_one() -> None:
    """What only a process beside the database can do is in `LocalService`."""
    rooms = {
        Service: {"log_chunks", "log_chunks_before", "of", "admin", "findings", "notifications"},
        Findings: {"of"},
        Admin: {"of", "pause", "limit_queue"},
        Notifying: {"of"},
    }
    for room, by_hand in rooms.items():
        public = {name for name, _ in getmembers(room, isroutine) if not name.startswith("_")}
        assert public - {verb.name for verb in declared_in(room)} == by_hand, room


def test_no_two_classes_have_one_name() -> None:
    """A reader who searches for a name finds one thing; a table is called as its noun."""
    places: dict[str, list[str]] = {}
    for kind in _classes():
        if not kind.__name__.startswith("_") and not issubclass(kind, SQLModel):
            places.setdefault(kind.__name__, []).append(kind.__module__)
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in TWICE} == {}
