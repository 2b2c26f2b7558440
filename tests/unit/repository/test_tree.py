"""The rules of the tree itself."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import distributions
from pathlib import Path

import pytest
from grimp import build_graph
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[3]
FOLDERS = (
    "schema",
    "lambda",
    "worker",
    "client",
    "infra",
    "examples",
    "benchmarks",
    "tests",
    "requirements",
)
MADE = {".venv", "__pycache__", "runs", "node_modules"}
PACKAGES = ("forge_schema", "forge_functions", "forge_worker", "forge_client")
LONGEST = 500
NAMES_THAT_SAY_NOTHING = {"util", "utils", "common", "helper", "helpers", "misc"}
# An index, a download address, or a file of one machine: a pin is a name, a version and hashes.
FOREIGN = re.compile(
    r"://|index-url|find-links|trusted-host|@ |^\s*(-e|-f|-i)\b|\.whl\b", re.MULTILINE
)
SLEEP = re.compile(r"\btime\.sleep\(|from time import .*\bsleep\b")
# One pattern for both, as a comment may hold an apostrophe and a quoted text two dashes.
SQL_COMMENT_OR_QUOTED = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$", re.DOTALL
)


# How comments speak of what serves neighbours; see "Serve the release before" in CONTRIBUTING.md.
BRIDGE = re.compile(
    r"(earlier|older|previous) (version|release|server|worker|client)s? (do|of|is|has|know|refuse)"
    r"|(an?|the) (earlier|older|previous) (server|worker|client|release)\b"
    r"|(server|worker|client|program)s? of 0\.\d"
    r"|(version|release) before",
    re.IGNORECASE,
)
# FORGE_URL=…, but no word of a sentence.
BEGINS_LARGE = re.compile(r"[A-Z][a-z]")


@cache
def _files(suffix: str) -> list[Path]:
    """List the sources, found without git, which a copy of the tree may lack."""
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob(f"*{suffix}")
        if path.is_file() and not MADE & set(path.relative_to(ROOT).parts)
    )


def _breaking(suffix: str, pattern: re.Pattern[str], below: str = ".") -> list[str]:
    """Name the files below a folder whose text has the pattern."""
    return [
        str(path.relative_to(ROOT))
        for path in _files(suffix)
        if path.is_relative_to(ROOT / below) and pattern.search(path.read_text(encoding="utf-8"))
    ]


def statements(source: str) -> list[str]:
    """Split SQL at its semicolons, those in comments and quotes left out."""
    bare = SQL_COMMENT_OR_QUOTED.sub(_blank, source)
    return [part.strip() for part in bare.split(";") if part.strip()]


def _blank(match: re.Match[str]) -> str:
    return " " if match[0].startswith(("--", "/*")) else "''"


def test_no_module_is_over_500_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for suffix in (".py", ".sql")
        for path in _files(suffix)
    }
    assert lengths
    wanted = "move what is one concern of these into a module of its own, or beside its only user"
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}, wanted


def test_no_module_has_a_name_that_says_nothing() -> None:
    modules = [path.relative_to(ROOT) for path in _files(".py")]
    named = [path for path in modules if NAMES_THAT_SAY_NOTHING & {path.stem, *path.parts}]
    assert named == []


def test_lambda_is_a_folder_and_never_a_package() -> None:
    assert not (ROOT / "lambda" / "__init__.py").exists()


def test_no_test_sleeps() -> None:
    assert _breaking(".py", SLEEP, "tests") == []


def test_what_serves_another_release_lies_in_a_module_of_its_own() -> None:
    wrong = [
        path
        for package in ("schema", "lambda", "worker", "client")
        for suffix in (".py", ".sql")
        for path in _breaking(suffix, BRIDGE, package)
        if Path(path).stem != "compatibility"
    ]
    assert wrong == []
    assert BRIDGE.search("# A server of the release before does not know it.")
    assert BRIDGE.search("# A server of 0.2, which looks at all of them.")


def test_no_two_modules_import_each_other_not_even_late() -> None:
    imported = build_graph(*PACKAGES, exclude_type_checking_imports=True)
    below = {name: imported.find_modules_directly_imported_by(name) for name in imported.modules}
    assert len(below) > 600
    TopologicalSorter(below).prepare()  # raises an error that names a circle


def test_the_pinned_lists_name_no_host_and_no_path() -> None:
    assert _breaking(".txt", FOREIGN, "requirements") == []


def test_pinned_packages_install_on_the_oldest_python_that_the_readme_promises() -> None:
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = least.removeprefix(">=") + ".0"
    found = [one.metadata for one in distributions() if "Requires-Python" in one.metadata]
    assert len(found) > 100
    wrong = [one for one in found if oldest not in SpecifierSet(one["Requires-Python"])]
    assert [one["Name"] for one in wrong] == []


def test_every_pin_has_its_hash() -> None:
    lists = [path for path in _files(".txt") if path.parent == ROOT / "requirements"]
    expected = {"base", "worker", "functions", "demo", "dev", "launchers", "libraries", "release"}
    assert {path.stem for path in lists} == expected
    for path in lists:
        entries = re.split(r"\n(?=\w)", path.read_text(encoding="utf-8"))[1:]
        assert entries
        assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def _hints(source: str) -> Iterator[str]:
    """Yield the texts given as `hint`, or to a constant whose name ends with it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            yield from _texts(node.value)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).lower().endswith("hint"):
            yield from _texts(node.value)


def _texts(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr():
            yield ast.unparse(value)[2:-1]
        case ast.IfExp():
            yield from _texts(value.body)
            yield from _texts(value.orelse)


def test_hints_begin_small_and_end_without_a_full_stop() -> None:
    hints = [
        (path.name, hint)
        for path in _files(".py")
        if path.relative_to(ROOT).parts[0] in {"schema", "lambda", "worker", "client"}
        for hint in _hints(path.read_text(encoding="utf-8"))
    ]
    assert len(hints) > 100
    assert [one for one in hints if BEGINS_LARGE.match(one[1]) or one[1].endswith(".")] == []


def test_every_query_is_one_statement() -> None:
    queries = [path for path in _files(".sql") if path.parts[-3] == "sql"]
    assert queries
    counts = {path.name: len(statements(path.read_text(encoding="utf-8"))) for path in queries}
    assert {name: count for name, count in counts.items() if count != 1} == {}
    # They are called by name alone, whatever their folder.
    assert len(counts) == len(queries)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("SELECT 1", 1),
        ("SELECT 1;\n", 1),
        ("-- one; two\nSELECT ';' /* ; */;", 1),
        ("SELECT '--', 1; SELECT 2", 2),
        ("DO $do$ BEGIN NULL; END $do$;", 1),
        ("-- nobody's; SELECT 1\nSELECT 'a'; -- it's\n", 1),
        ("-- nothing", 0),
    ],
)
def test_statements_are_counted_outside_comments_and_quotes(source: str, count: int) -> None:
    assert len(statements(source)) == count
