"""Choose where the packages of a project's jobs are listed, and make a lock of it.

A lock in the project comes before a list, and a list before the submitter's active environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from forge_schema.model.job import Environment
from forge_schema.model.quantities import counted, names_text

from forge_client.project.environment import notebook, pythons, unused
from forge_client.project.environment.active import active_environment
from forge_client.project.environment.locks import Lock, lock, resolved
from forge_client.project.environment.pythons import SETUP, Python, setup_option
from forge_client.project.environment.sources import (
    INPUT,
    INSTALLED,
    LISTED,
    POETRY,
    UV,
    ActiveSource,
    Source,
    lines,
    source_of,
)
from forge_client.project.environment.tables import PROJECT, dependencies, wrong
from forge_client.project.environment.uv import ABSENT, NotLocked
from forge_client.project.listing import Listing

ACTIVE = "active"
ORDER = (UV, POETRY, PROJECT, "environment.yml", "environment.yaml", LISTED, INPUT, SETUP)
NO_LIST = "the folder has no list of packages"


@dataclass(frozen=True)
class Wanted:
    """What matters for the choice: the list that was `asked` for, and what the job is.

    `whole` is for tests, which need a project's packages for development too.
    """

    asked: str | None = None
    has_image: bool = False
    whole: bool = False
    is_notebook: bool = False


@dataclass(frozen=True)
class Chosen:
    """A job's packages: a file of the project, or else the text of a list, and a line for people.

    Without either, the job installs nothing. No index has those that are `absent`.
    """

    said: str
    file: str = ""
    text: str = ""
    environment: Environment | None = None
    absent: tuple[str, ...] = ()


def choose(listing: Listing, wanted: Wanted) -> Chosen:
    """Choose the packages of a job.

    Raises:
        ClientError: a list is malformed, out of date or not in the bundle, or it names packages
            that are not Python's.
    """
    files = {entry.name: entry.path for entry in listing.files}
    source, why = _source(files, wanted)
    python = (source.python if source else None) or pythons.asked_for(files)
    if source is None and not wanted.is_notebook:
        return _without_list(why, None if wanted.has_image else python)
    called = source.called if source else "what runs a notebook"
    more = lines(notebook.PACKAGES) if wanted.is_notebook else ""
    try:
        made = _lock(listing.root, source, wanted, more, python)
    except NotLocked as error:
        chosen = _unlocked(source, called, f"{why}; not locked: {error}", more, python)
        return replace(chosen, absent=tuple(dict.fromkeys(ABSENT.findall(str(error)))))
    environment = Environment(
        source=called,
        reason=why,
        packages=made.packages,
        lock=made.digest,
        python=python.lowest if python else None,
    )
    locked = f"{counted(made.packages, 'package')} locked{made.note}"
    return Chosen(f"{called} ({why}), {locked}{_left(source)}", "", made.text, environment)


def _source(files: Mapping[str, Path], wanted: Wanted) -> tuple[Source | None, str]:
    """Return where the packages are listed, and why there, for people."""
    if wanted.asked and (wanted.asked != ACTIVE or ACTIVE in files):
        return _asked(files, wanted.asked), "as requested"
    if not wanted.asked and (present := [name for name in ORDER if _is_list(files, name)]):
        others = f" before {', '.join(present[1:])}" if present[1:] else ""
        if ignored := [one.name for one in unused.unused(files) if one.exact]:
            others += f", not used: {names_text(ignored)}"
        return source_of(present[0], files[present[0]]), f"found in the folder{others}"
    seen = [] if wanted.asked else unused.unused(files)
    why = f"not used: {names_text([one.name for one in seen])}" if seen else NO_LIST
    if wanted.has_image and not wanted.asked:
        return None, f"only what the image has: {why}"
    if found := active_environment():
        return ActiveSource(found), "as requested" if wanted.asked else why
    if stopping := [one for one in seen if one.stops]:
        raise unused.refuse(stopping)
    if wanted.asked:
        raise wrong(
            "no environment with packages of its own is active",
            "activate it first: `source .venv/bin/activate` or `conda activate NAME`",
        )
    return None, f"only what the worker's Python has: {why}"


def _asked(files: Mapping[str, Path], name: str) -> Source:
    if name not in files:
        raise wrong(
            f"requirements: {name} is not in the bundle",
            "give the file's path in the project, and check that it is not ignored",
        )
    unused.check(name, files[name])
    return source_of(name, files[name])


def _is_list(files: Mapping[str, Path], name: str) -> bool:
    if name == UV:
        return {UV, PROJECT} <= files.keys()
    if name == SETUP and name in files:
        listed = setup_option(files[name], INSTALLED)
        return bool(listed) and not listed.startswith("file:")
    return name in files and (name != PROJECT or bool(dependencies(files[name])))


def _without_list(why: str, python: Python | None) -> Chosen:
    """Return no packages; if the project asks for a Python, it is one without any."""
    if python is None:
        return Chosen(why)
    made = lock("", python)
    said = f"none, and Python {python.said} ({python.where}): {NO_LIST}"
    environment = Environment(
        source=python.where, reason=NO_LIST, packages=0, lock=made.digest, python=python.lowest
    )
    return Chosen(said, "", made.text, environment)


def _lock(
    root: Path, source: Source | None, wanted: Wanted, more: str, python: Python | None
) -> Lock:
    if source is None:
        return resolved(root, None, more, python)
    if wanted.has_image and not source.exact:
        raise NotLocked("the image may have some of it already")
    made = source.lock(python, whole=wanted.whole)
    return resolved(root, None, made.text + more, python) if more else made


def _unlocked(
    source: Source | None, called: str, why: str, more: str, python: Python | None
) -> Chosen:
    """Return a list that the worker resolves."""
    file, text = source.plain() if source else ("", "")
    environment = Environment(source=called, reason=why, python=python.lowest if python else None)
    said = f"{called} ({why}){_left(source)}"
    if file and not more:
        return Chosen(said, file, "", environment)
    return Chosen(said, "", text + more, environment)


def _left(source: Source | None) -> str:
    left_out = source.found.left_out if isinstance(source, ActiveSource) else ()
    return f"; not sent, because no index has it: {', '.join(left_out)}" if left_out else ""
