"""Requests with their packages: what `forge submit` sends of a project's environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from forge_schema.model.bundles import LOCK, PLAIN, WRITTEN

from forge_client.project import IMAGE_WAYS
from forge_client.project.environment.choice import ChosenPackages, Wanted, choose
from forge_client.project.environment.locks import stored
from forge_client.project.environment.names import NOTHING, Picked
from forge_client.project.environment.tools.run import (
    ENDING,
    ToolRun,
    is_notebook,
    notebook_command,
    without_tool,
)
from forge_client.project.listing import BundleEntry, Listing, is_environment

if TYPE_CHECKING:
    from forge_client.project.request import Request

TEST = "test"
# What runs a file that is named in place of a program.
RUNNERS = {".py": "python", ".sh": "bash"}


@dataclass(frozen=True)
class WithPackages:
    """Jobs that name what they install, and the files of their project with the lists of it.

    `notes` tell people what was chosen, and `environments` by the path of a list. No index has
    the packages that are `absent`.
    """

    requests: list[Request]
    listing: Listing
    notes: tuple[str, ...] = ()
    environments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    def shown(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a job that show people its environment."""
        environment = self.environments.get(spec.get("requirements") or "")
        return {"environment": environment} if environment else {}


def choose_packages(
    requests: Sequence[Request], listing: Listing, below: Mapping[str, Any] | None = None
) -> WithPackages:
    """Choose what jobs install, and how a notebook or a script among them is run.

    Raises:
        ClientError: as `choose`.
    """
    choosing = _Choosing(listing, below or {})
    made = [choosing.request(request) for request in requests]
    # A folder that `forge code` fetched has those of its job.
    theirs = tuple(entry for entry in listing.entries if not entry.name.startswith(WRITTEN))
    whole = replace(listing, entries=(*theirs, *choosing.lists.values()))
    notes = tuple(dict.fromkeys(choosing.notes))
    absent = tuple(name for packages in choosing.chosen.values() for name in packages.absent)
    return WithPackages(made, whole, notes, choosing.environments, tuple(dict.fromkeys(absent)))


@dataclass
class _Choosing:
    listing: Listing
    below: Mapping[str, Any]
    chosen: dict[Wanted, ChosenPackages] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lists: dict[str, BundleEntry] = field(default_factory=dict)
    environments: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def request(self, request: Request) -> Request:
        # A handler runs in the worker's own environment.
        if request.handler or self.below.get("handler"):
            return request
        request = self._outside_environment(request)
        run = without_tool(request.command or (), self.files)
        listed = self._requirements(request, run)
        made = request.model_copy(update={"requirements": listed})
        if listed and run and not self._has_image(request):
            self.notes.append(f"`{run.tool} run` is left out: the packages are there without it")
            made = made.model_copy(update={"command": list(run.words)})
        if script := self._as_script(made):
            return made.model_copy(update={"command": script})
        if made.command and is_notebook(made.command):
            return made.model_copy(update={"command": notebook_command(made.command)})
        return made

    def _outside_environment(self, request: Request) -> Request:
        """Name a program of an environment in the folder, which is left out, without its place."""
        program, *words = request.command or [""]
        place = self.listing.root / program
        inside = place.is_relative_to(self.listing.root) and place.parent.name == "bin"
        if not inside or not is_environment(place.parent.parent):
            return request
        self.notes.append(f"{program} is left out: the job has a {place.name} of its own")
        return request.model_copy(update={"command": [place.name, *words]})

    @cached_property
    def files(self) -> dict[str, Path]:
        """The files of the project."""
        return {file.name: file.path for file in self.listing.files}

    def _has_image(self, request: Request) -> bool:
        return any(getattr(request, way) or self.below.get(way) for way in IMAGE_WAYS)

    def _as_script(self, request: Request) -> list[str]:
        """Return the command that runs a script of the project; [] if the command is none.

        A launcher takes the file as it is.
        """
        program, *words = request.command or [""]
        runner = RUNNERS.get(PurePosixPath(program).suffix)
        is_ours = "/" not in program and program in self.files
        return [runner, program, *words] if runner and is_ours and not request.launcher else []

    def _requirements(self, request: Request, run: ToolRun | None) -> str | Literal[False] | None:
        asked = request.requirements
        if asked is False:
            self.notes.append("none, as requested")
        if asked is False or (asked is None and "requirements" in self.below):
            return asked
        words = list(run.words) if run else request.command or []
        wanted = Wanted(
            asked,
            has_image=self._has_image(request),
            is_notebook=is_notebook(request.command),
            picked=self._picked(request, run),
            script=next((word for word in map(_bare, words) if self._is_script(word, run)), ""),
            first=bool(run and run.takes_script),
        )
        if wanted not in self.chosen:
            self.chosen[wanted] = choose(self.listing, wanted)
            self.notes.append(self.chosen[wanted].note)
        self.lists |= {entry.name: entry for entry in self.chosen[wanted].entries}
        return self._path(self.chosen[wanted])

    def _is_script(self, name: str, run: ToolRun | None) -> bool:
        is_one = name.endswith(ENDING) or bool(run and run.is_script)
        return is_one and name in self.files

    def _picked(self, request: Request, run: ToolRun | None) -> Picked:
        of_tool = run.picked if run else NOTHING
        return Picked(
            tuple(dict.fromkeys([*(request.extras or []), *of_tool.extras])),
            tuple(dict.fromkeys([*(request.groups or []), *of_tool.groups])),
            whole=(request.kind or self.below.get("kind")) == TEST,
        )

    def _path(self, chosen: ChosenPackages) -> str | None:
        """Return the path of a list in the bundle, to which it is added if Forge wrote it."""
        path = chosen.file or None
        if chosen.text:
            stem = LOCK if chosen.environment and "lock" in chosen.environment else PLAIN
            path = self._added(stem, chosen.text)
        if path and chosen.environment:
            self.environments[path] = chosen.environment
        return path

    def _added(self, stem: str, text: str) -> str:
        file = stored(text)
        for number in range(len(self.lists) + 1):
            name = f"{stem}{f'-{number}' if number else ''}.txt"
            if self.lists.setdefault(name, _entry(name, file)).path == file:
                return name
        raise AssertionError("unreachable")


def _bare(word: str) -> str:
    return word.removeprefix("./")


def _entry(name: str, file: Path) -> BundleEntry:
    status = file.stat()
    return BundleEntry(name, file, folder=False, size=status.st_size, mtime_ns=status.st_mtime_ns)
