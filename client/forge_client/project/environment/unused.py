"""Lists of packages that Forge knows by their names, and does not install from."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from forge_client.errors import ClientError
from forge_client.project.environment.pythons import SETUP, setup_option
from forge_client.project.environment.tables import PROJECT, table, wrong
from forge_client.project.environment.tools import PYLOCKS

# How the tool that wrote a file makes a list of it that Forge reads.
ADVICE = {
    "Pipfile": "`pipenv lock`",
    "pixi.toml": "`pixi lock`",
    "hatch.toml": "`hatch dep show requirements > requirements.txt`",
    "setup.py": "`uv pip compile setup.py -o requirements.txt`",
}
# With the one that is read, but not alone.
ALONE = {**ADVICE, "uv.lock": "the pyproject.toml that it was made of"}
# What is taken in place of each.
LOCKS = {"Pipfile": "Pipfile.lock", "pixi.toml": "pixi.lock", "uv.lock": PROJECT}
LISTS = "requirements"
# Names of lists of which a project has several, for several purposes; last, those of its parts.
VARIANTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"requirements/[^/]+\.(txt|in)",
        r"([^/]+[-_.])?(requirements|reqs)([-_.][^/]+)?\.(txt|in|lock)",
        r"[^/]+\.conda-lock\.ya?ml",
        r"pylock\.[^/.]+\.toml",
        r"(environment[-_.][^/]+|env|conda|conda[-_][^/]+)\.ya?ml",
        r"([^/]+/){1,2}(requirements\.txt|environment\.ya?ml|uv\.lock|poetry\.lock|pylock\.toml)",
    )
)
# What conda-lock renders for one platform: URLs of packages of conda.
EXPLICIT = re.compile(r"conda-[^/]+\.lock")
BESIDE = "the conda-lock.yml or environment.yml that it was made of"
# What is taken without being named.
READ = frozenset({"requirements.txt", "requirements.in", "conda-lock.yml", "conda-lock.yaml"})
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

    It `stops` a submit if nothing else lists the packages that the project needs. Its tool makes
    its `lock` of it, if any; of the others, the list that is used may have been made.
    """

    name: str
    advice: str
    stops: bool = True
    lock: str = ""

    @property
    def exact(self) -> bool:
        """Whether it has versions, which others than those that are installed may be."""
        return "lock" in self.name


def unused(files: Mapping[str, Path]) -> list[Unused]:
    """Return the lists of packages in a project that are of other kinds.

    Raises:
        ClientError: its pyproject.toml is malformed.
    """
    named = (
        Unused(name, advice, lock=LOCKS.get(name, ""))
        for name, advice in ALONE.items()
        if _lists(name, files.get(name)) and LOCKS.get(name) not in files
    )
    whole = (_tables(files), _hatch(files), named, _setup_cfg(files), _in_folder(files))
    return [item for some in whole for item in some]


def refuse(seen: Sequence[Unused]) -> ClientError:
    """Return the error for a project whose packages are listed only where Forge does not look."""
    names = " and ".join(each.name for each in seen[:2])
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
    if EXPLICIT.fullmatch(bare):
        raise refuse([Unused(name, BESIDE)])
    is_project = bare.endswith(".toml") and not PYLOCKS.fullmatch(bare)
    if is_project and "dependencies" not in table(path, "project"):
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
    candidates: list[tuple[object, str, str, str]] = [
        (poetry.keys() - {"python"}, "[tool.poetry.dependencies]", "`poetry lock`", "poetry.lock"),
        (pixi.keys() - {"python"}, "[tool.pixi]", ADVICE["pixi.toml"], LOCKS["pixi.toml"]),
        (
            table(path, "tool", "flit", "metadata").get("requires"),
            "[tool.flit.metadata]",
            "`[project].dependencies`",
            "",
        ),
        (
            "dependencies" in (table(path, "project").get("dynamic") or ()),
            "its build (`dynamic`)",
            "`uv pip compile pyproject.toml -o requirements.txt`",
            "",
        ),
    ]
    for there, what, advice, lock in candidates:
        if there and lock not in files:
            yield Unused(f"{PROJECT}, {what}", advice, lock=lock)
    optional = table(path, "project", "optional-dependencies")
    for there, what in (
        (table(path, "dependency-groups"), "[dependency-groups]"),
        (optional, "[project.optional-dependencies]"),
        *(
            (table(path, "tool", tool).get("dev-dependencies"), f"[tool.{tool}].dev-dependencies")
            for tool in ("uv", "pdm", "rye")
        ),
    ):
        if there:
            yield Unused(f"{PROJECT}, {what}", "`[project].dependencies`", stops=False)


def _setup_cfg(files: Mapping[str, Path]) -> Iterator[Unused]:
    path = files.get(SETUP)
    listed = setup_option(path, "install_requires") if path else ""
    if listed.startswith("file:"):
        yield Unused(SETUP, f"--requirements {listed.removeprefix('file:').strip()}")


def _hatch(files: Mapping[str, Path]) -> Iterator[Unused]:
    """Yield the environments of Hatch that list packages; its default one is for running things."""
    path = files.get(PROJECT)
    for name, environment in (table(path, "tool", "hatch", "envs") if path else {}).items():
        if isinstance(environment, dict) and (
            environment.get("dependencies") or environment.get("extra-dependencies")
        ):
            advice = ADVICE["hatch.toml"]
            yield Unused(f"{PROJECT}, [tool.hatch.envs.{name}]", advice, stops=name == "default")


def _in_folder(files: Mapping[str, Path]) -> Iterator[Unused]:
    """Yield the lists beside each other; which one a job needs, nobody can tell."""
    yield from (Unused(name, BESIDE) for name in sorted(files) if EXPLICIT.fullmatch(name))
    paths = [PurePosixPath(name) for name in files if not is_hidden(name)]
    for path in sorted(paths, key=_order(LISTS)):
        kind = next((kind for kind in VARIANTS if kind.fullmatch(str(path))), None)
        if kind and str(path) not in READ:
            words = set(re.split(r"[-_./]", str(path.with_suffix("")).lower()))
            stops = not words & OTHERS and kind is not VARIANTS[-1]
            yield Unused(str(path), f"--requirements {path}", stops=stops)


def is_hidden(name: str) -> bool:
    """Tell whether a file is hidden, or in a hidden folder."""
    return any(part.startswith(".") for part in name.split("/"))


def _order(stem: str) -> Callable[[PurePosixPath], tuple[bool, str]]:
    common = {stem, "base", "main", "common", "prod", "production"}
    return lambda path: (path.stem not in common, str(path))
