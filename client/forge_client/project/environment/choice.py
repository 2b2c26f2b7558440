"""Choose where the packages of a project's jobs are listed, and make a lock of it.

A lock in the project comes before a list, and a list before the submitter's active environment.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from forge_schema.model.bundles import PIP_HASH
from forge_schema.model.errors import nearest
from forge_schema.model.quantities import counted, names_text

from forge_client.errors import ClientError
from forge_client.project.environment import pythons, unused
from forge_client.project.environment.active import active_environment
from forge_client.project.environment.local import Carrier, place_in, refuse_elsewhere
from forge_client.project.environment.locks import ListToResolve, Lock, list_texts, lock, resolved
from forge_client.project.environment.names import NOTHING, Picked
from forge_client.project.environment.pythons import SETUP, Python, setup_option
from forge_client.project.environment.sources import (
    CONDA_LOCK,
    INPUT,
    INSTALLED,
    LISTED,
    PIXI,
    UV,
    ActiveSource,
    CondaFile,
    Source,
    lines,
    script_of,
    source_of,
    uv_lock,
)
from forge_client.project.environment.tables import PROJECT, dependencies, none_of, wrong
from forge_client.project.environment.tools import run
from forge_client.project.environment.uv import ABSENT, NotLocked
from forge_client.project.listing import BundleEntry, Listing

ACTIVE = "active"
ORDER = (
    *(UV, "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock", PIXI, PROJECT, *CONDA_LOCK),
    *("environment.yml", "environment.yaml", LISTED, INPUT, SETUP),
)
NO_LIST = "the folder has no list of packages"
OF_A_NOTEBOOK = "what runs a notebook"


@dataclass(frozen=True)
class Wanted:
    """What matters for the choice: the list that was `asked` for, and what the job is.

    The `script` is the file of the project that the command runs. If what runs it takes no other
    list than the script's own, that comes `first`.
    """

    asked: str | None = None
    has_image: bool = False
    is_notebook: bool = False
    picked: Picked = NOTHING
    script: str = ""
    first: bool = False


@dataclass(frozen=True)
class ChosenPackages:
    """A job's packages: a file of the project, or else the text of a list, and a line for people.

    Without either, the job installs nothing. No index has those that are `absent`. The `entries`
    are added to the bundle.
    """

    note: str
    file: str = ""
    text: str = ""
    environment: Mapping[str, Any] | None = None
    absent: tuple[str, ...] = ()
    entries: tuple[BundleEntry, ...] = ()


def choose(listing: Listing, wanted: Wanted) -> ChosenPackages:
    """Choose the packages of a job.

    Raises:
        ClientError: a list is malformed, out of date or not in the bundle, or it names packages
            that are not Python's.
    """
    files = {entry.name: entry.path for entry in listing.files}
    source, why = _source(files, wanted)
    python = _python(files, source)
    if source is None and wanted.picked:
        what, names = ("extra", wanted.picked.extras) if wanted.picked.extras else ("group", ())
        none_of(listing.root, what, names or wanted.picked.groups)
    if source is None and not wanted.is_notebook:
        told = f"{why}{_elsewhere(listing.root, files, wanted)}"
        return _without_list(told, None if wanted.has_image else python)
    called = source.called if source else OF_A_NOTEBOOK
    if source is None:
        # What runs a notebook is more than "only what the worker's Python has".
        why = why.partition(": ")[2]
    more = lines(run.NOTEBOOK_PACKAGES) if wanted.is_notebook else ""
    carrier = Carrier(listing)
    try:
        made = _lock(listing.root, source, wanted, more, python)
    except NotLocked as error:
        chosen = _unlocked(source, f"{why}; not locked: {error}", wanted, more, python)
        _check(listing, files, chosen, called)
        return replace(chosen, absent=tuple(dict.fromkeys(ABSENT.findall(str(error)))))
    base = made.base or (files[called].parent if called in files else listing.root)
    made = replace(made, text=carrier.text(made.text, base, called))
    environment = _environment(
        source=called,
        reason=why,
        packages=made.packages,
        lock=made.digest,
        python=python.lowest if python else None,
    )
    locked = f"{counted(made.packages, 'package')} locked{made.note}{_beside(carrier)}"
    other = _passed_over(files, source, python)
    note = f"{called}{_picked(wanted.picked)} ({why}), {locked}{other}{_left(source)}"
    return ChosenPackages(note, "", made.text, environment, (), tuple(carrier.entries.values()))


def _python(files: Mapping[str, Path], source: Source | None) -> Python | None:
    """Return the Python for a list; if the project asks for fewer than the list does, these."""
    own, asked = source.python if source else None, pythons.asked_for(files)
    near = _beside_of(files, source.called) if source else {}
    asked = (pythons.asked_for(near) if near else None) or asked
    if (pinned := pythons.pinned(near) or pythons.pinned(files)) and not _brings_python(source):
        return pinned
    if own and asked and set(asked.versions) < set(own.versions):
        return asked
    return own or asked


def _passed_over(files: Mapping[str, Path], source: Source | None, python: Python | None) -> str:
    """Say that a .python-version names none of the Pythons that the project or its lock is for."""
    if python is None or python.where != pythons.PYTHON_FILE:
        return ""
    rest = {name: path for name, path in files.items() if name != pythons.PYTHON_FILE}
    with suppress(ClientError):
        other = (source.python if source else None) or pythons.asked_for(rest)
        if (
            other
            and other.where != python.where
            and set(other.versions).isdisjoint(python.versions)
        ):
            return f" for Python {python.text} ({python.where}), not {other.text} ({other.where})"
    return ""


def _brings_python(source: Source | None) -> bool:
    """Tell whether a list has its Python among its packages."""
    return isinstance(source, (ActiveSource, CondaFile)) and source.python is not None


def _beside_of(files: Mapping[str, Path], name: str) -> dict[str, Path]:
    """Return the files in the folder of a list that is in none of its own, by their bare names."""
    folder = f"{PurePosixPath(name).parent}/"
    if folder == "./" or name not in files:
        return {}
    return {
        name.removeprefix(folder): path for name, path in files.items() if name.startswith(folder)
    }


def _picked(picked: Picked) -> str:
    named = [f"extra {name}" for name in picked.extras] + [
        f"group {name}" for name in picked.groups
    ]
    return f" with {names_text(named)}" if named else ""


def _beside(carrier: Carrier) -> str:
    """Say which packages come along from beside the project."""
    names = [path.name for path in carrier.folders]
    return f", {names_text(names)} from beside the project" if names else ""


def _check(
    listing: Listing, files: Mapping[str, Path], chosen: ChosenPackages, called: str
) -> None:
    """Check that a list that the worker resolves names nothing but what is in the bundle."""
    root = listing.root
    if chosen.text and not chosen.file:
        refuse_elsewhere(chosen.text, called, root, root)
    if chosen.file not in files or chosen.file.endswith(".toml"):
        return
    known = {path.resolve() for path in files.values()}
    # A list that the client has written itself is not in the project.
    there = files[chosen.file]
    try:
        texts = list_texts(there.parent, there.name)
    except NotLocked:
        return
    for path, text in texts.items():
        if path not in known:
            raise wrong(
                f"{chosen.file} includes {path}, which is not in the bundle",
                "submit from a folder that has both, and check .gitignore and .forgeignore",
            )
        refuse_elsewhere(text, path.name, root, path.parent)


def _source(files: Mapping[str, Path], wanted: Wanted) -> tuple[Source | None, str]:
    """Return where the packages are listed, and why there, for people."""
    if wanted.asked and (wanted.asked != ACTIVE or ACTIVE in files):
        return _asked(files, wanted.asked), "as requested"
    if not wanted.asked and (listed := _listed(files, wanted)):
        return listed
    seen = [] if wanted.asked else unused.unused(files)
    why = f"not used: {names_text([listed.name for listed in seen])}" if seen else NO_LIST
    if wanted.has_image and not wanted.asked:
        return None, f"only what the image has: {why}"
    if active := active_environment():
        return ActiveSource(active), "as requested" if wanted.asked else why
    if stopping := [listed for listed in seen if listed.stops]:
        raise unused.refuse(stopping)
    if wanted.asked:
        raise wrong(
            "no environment with packages of its own is active",
            "activate it first: `source .venv/bin/activate` or `conda activate NAME`",
        )
    return None, f"only what the worker's Python has: {why}"


def _listed(files: Mapping[str, Path], wanted: Wanted) -> tuple[Source, str] | None:
    """Return the list in the folder, or in the script that the command runs."""
    has_block = bool(wanted.script and run.block(files[wanted.script]))
    present = [name for name in ORDER if _is_list(files, name, wanted)]
    if has_block and (wanted.first or not present):
        return script_of(wanted.script, files[wanted.script]), "listed in the script itself"
    if present:
        return _source_named(
            files, present[0]
        ), f"found in the folder{_others(files, wanted, present)}"
    return None


def _source_named(files: Mapping[str, Path], name: str) -> Source:
    own = uv_lock(PROJECT, files[PROJECT]) if name == UV else None
    return own or source_of(name, files[name])


def _others(files: Mapping[str, Path], wanted: Wanted, present: Sequence[str]) -> str:
    """Name the lists that are there too, and are not used."""
    others = f" before {', '.join(present[1:])}" if present[1:] else ""
    ignored = [listed.name for listed in unused.unused(files) if listed.exact or listed.lock]
    if wanted.script and run.block(files[wanted.script]):
        ignored.append(f"the packages that {wanted.script} lists itself")
    return others + (f", not used: {names_text(ignored)}" if ignored else "")


def _asked(files: Mapping[str, Path], name: str) -> Source:
    if name not in files:
        raise wrong(
            f"requirements: {name} is not among the project's files",
            f"{nearest(name, files)}what .gitignore leaves out needs --include",
        )
    unused.check(name, files[name])
    return source_of(name, files[name])


def _is_list(files: Mapping[str, Path], name: str, wanted: Wanted) -> bool:
    if name == UV:
        own = uv_lock(PROJECT, files[PROJECT]) if PROJECT in files else None
        return own is not None and (name in files or own.called != name)
    if name == SETUP and name in files:
        listed = setup_option(files[name], INSTALLED)
        return bool(listed) and not listed.startswith("file:")
    if name == PROJECT and name in files:
        # A group needs no package beside it.
        return bool(wanted.picked or dependencies(files[name]))
    return name in files


def _environment(**fields: str | int | None) -> dict[str, Any]:
    """Return a job's `environment`, without what is not known of it."""
    return {name: value for name, value in fields.items() if value is not None}


def _elsewhere(root: Path, files: Mapping[str, Path], wanted: Wanted) -> str:
    """Say where a list is that is not used: beside the script, or above the folder."""
    if wanted.asked or wanted.has_image:
        return ""
    beside = str(PurePosixPath(wanted.script).parent)
    seen = [listed for listed in unused.unused(files) if "/" in listed.name]
    for listed in seen:
        if len(seen) == 1 or str(PurePosixPath(listed.name).parent) == beside:
            return f"; {listed.advice} takes it"
    tops = [folder for folder in (root, *root.parents) if (folder / ".git").exists()][:1]
    for folder in root.parents if not seen else ():
        if not any(folder.is_relative_to(top) for top in tops):
            break
        there = {name: folder / name for name in ORDER if (folder / name).is_file()}
        with suppress(ClientError):
            if name := next((name for name in there if _is_list(there, name, wanted)), ""):
                return f"; {os.path.relpath(folder / name, root)} is outside it: submit from there"
    return ""


def _without_list(why: str, python: Python | None) -> ChosenPackages:
    """Return no packages; if the project asks for a Python, it is one without any."""
    if python is None:
        return ChosenPackages(why)
    made = lock("", python)
    note = f"none, and Python {python.text} ({python.where}): {NO_LIST}"
    environment = _environment(
        source=python.where, reason=NO_LIST, packages=0, lock=made.digest, python=python.lowest
    )
    return ChosenPackages(note, "", made.text, environment)


def _lock(
    root: Path, source: Source | None, wanted: Wanted, more: str, python: Python | None
) -> Lock:
    if source is None:
        return resolved(ListToResolve(root, root, None, "", more), python)
    if wanted.has_image and not source.exact:
        raise NotLocked("the image may have some of it already")
    made = source.lock(python, wanted.picked)
    if not more:
        return made
    # What a package in a folder requires is among the others.
    rest = made.text.splitlines()
    local = [line for line in rest if place_in(line)]
    others = lines([line for line in rest if not place_in(line)])
    whole = resolved(ListToResolve(root, root, None, source.called, others + more), python)
    # pip wants the digests of all packages or of none.
    text = PIP_HASH.sub("", whole.text) if local else whole.text
    return replace(whole, text=text + lines(local), base=made.base)


def _unlocked(
    source: Source | None, why: str, wanted: Wanted, more: str, python: Python | None
) -> ChosenPackages:
    """Return a list that the worker resolves."""
    called = source.called if source else OF_A_NOTEBOOK
    file, text = source.plain(wanted.picked) if source else ("", "")
    environment = _environment(source=called, reason=why, python=python.lowest if python else None)
    note = f"{called}{_picked(wanted.picked)} ({why}){_left(source)}"
    if file and not more:
        return ChosenPackages(note, file, "", environment)
    return ChosenPackages(note, "", text + more, environment)


def _left(source: Source | None) -> str:
    if isinstance(source, CondaFile) and (brought := source.brought):
        return f"; in the wheels of others already: {', '.join(brought)}"
    left_out = source.active.left_out if isinstance(source, ActiveSource) else ()
    return f"; not sent, because no index has it: {', '.join(left_out)}" if left_out else ""
