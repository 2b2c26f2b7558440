"""Lists of packages that Forge knows by their names, and does not install from."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from forge_client.errors import ClientError
from forge_client.project.environment.pythons import SETUP, setup_option
from forge_client.project.environment.tables import PROJECT, table, wrong

# How the tool that wrote a file makes a list of it that Forge reads.
ADVICE = {
    "Pipfile.lock": "`pipenv requirements > requirements.txt`",
    "Pipfile": "`pipenv lock && pipenv requirements > requirements.txt`",
    "pdm.lock": "`pdm export -o requirements.txt`",
    "pixi.lock": "`pixi project export conda-environment > environment.yml`",
    "pixi.toml": "`pixi project export conda-environment > environment.yml`",
    "conda-lock.yml": "an environment.yml beside it",
    "pylock.toml": "a requirements.txt, or the lock of its tool",
    "hatch.toml": "`hatch dep show requirements > requirements.txt`",
    "setup.py": "`uv pip compile setup.py -o requirements.txt`",
}
LISTS = "requirements"
# Lists of what is needed to work on a project, not to run it.
OTHERS = {
    "build",
    "ci",
    "dev",
    "develop",
    "doc",
    "docs",
    "lint",
    "test",
    "tests",
    "types",
    "typing",
}


@dataclass(frozen=True)
class Unused:
    """A list that is seen and not used: its name, and how to make one of it that is.

    `exact` if it has versions, which others than those that are installed may be. It `stops` a
    submit if nothing else lists the packages that the project needs.
    """

    name: str
    advice: str
    exact: bool = False
    stops: bool = True


def unused(files: Mapping[str, Path]) -> list[Unused]:
    """Return the lists of packages in a project that are of other kinds.

    Raises:
        ClientError: its pyproject.toml is malformed.
    """
    named = (
        Unused(name, ADVICE[name], exact="lock" in name)
        for name in ADVICE
        if _lists(name, files.get(name))
    )
    return [*_tables(files), *named, *_setup_cfg(files), *_in_folder(files)]


def refuse(seen: Sequence[Unused]) -> ClientError:
    """Return the error for a project whose packages are listed only where Forge does not look."""
    names = " and ".join(one.name for one in seen[:2])
    return wrong(
        f"the project's packages are in {names}, which Forge does not install from",
        f"make a list that it does: {seen[0].advice}; or name one with --requirements FILE, or your"
        " own environment with --requirements active; or --no-install, for only what is there",
    )


def check(name: str, path: Path) -> None:
    """Refuse a list that was named, and is of a kind that would install nothing.

    Raises:
        ClientError: as said.
    """
    bare = PurePosixPath(name).name
    if bare in ADVICE:
        raise refuse([Unused(name, ADVICE[bare])])
    if bare == PROJECT and "dependencies" not in table(path, "project"):
        raise refuse([*_tables({PROJECT: path}), Unused(name, "`[project].dependencies` in it")])


def _lists(name: str, path: Path | None) -> bool:
    # Most are there only to name the project.
    if path is None or name != "setup.py":
        return path is not None
    return b"install_requires" in path.read_bytes() or b"setup_requires" in path.read_bytes()


def _tables(files: Mapping[str, Path]) -> Iterator[Unused]:
    if (path := files.get(PROJECT)) is None:
        return
    poetry = table(path, "tool", "poetry", "dependencies")
    pixi = {
        **table(path, "tool", "pixi", "dependencies"),
        **table(path, "tool", "pixi", "pypi-dependencies"),
    }
    hatch = table(path, "tool", "hatch", "envs").get("default")
    found: list[tuple[object, str, str]] = [
        (poetry.keys() - {"python"}, "[tool.poetry.dependencies]", "`poetry lock`"),
        (pixi.keys() - {"python"}, "[tool.pixi]", ADVICE["pixi.toml"]),
        (
            isinstance(hatch, dict) and hatch.get("dependencies"),
            "[tool.hatch.envs]",
            ADVICE["hatch.toml"],
        ),
        (
            "dependencies" in (table(path, "project").get("dynamic") or ()),
            "its build (`dynamic`)",
            "`uv pip compile pyproject.toml -o requirements.txt`",
        ),
    ]
    for there, what, advice in found:
        if there:
            yield Unused(f"{PROJECT}, {what}", advice)
    optional = table(path, "project", "optional-dependencies")
    for there, what in (
        (table(path, "dependency-groups"), "[dependency-groups]"),
        (optional, "[project.optional-dependencies]"),
    ):
        if there:
            yield Unused(f"{PROJECT}, {what}", "`[project].dependencies`", stops=False)


def _setup_cfg(files: Mapping[str, Path]) -> Iterator[Unused]:
    path = files.get(SETUP)
    listed = setup_option(path, "install_requires") if path else ""
    if listed.startswith("file:"):
        yield Unused(SETUP, f"--requirements {listed.removeprefix('file:').strip()}")


def _in_folder(files: Mapping[str, Path]) -> Iterator[Unused]:
    """Yield the lists in a folder of them; which one a job needs, nobody can tell."""
    paths = [PurePosixPath(name) for name in files]
    for path in sorted(paths, key=_order(LISTS)):
        beside = len(path.parts) == 1 and path.stem.startswith(f"{LISTS}-")
        if (path.parent.name == LISTS or beside) and path.suffix in {".txt", ".in"}:
            others = path.stem.removeprefix(f"{LISTS}-") in OTHERS
            yield Unused(str(path), f"--requirements {path}", stops=not others)


def _order(stem: str) -> Callable[[PurePosixPath], tuple[bool, str]]:
    common = {stem, "base", "main", "common", "prod", "production"}
    return lambda path: (path.stem not in common, str(path))
