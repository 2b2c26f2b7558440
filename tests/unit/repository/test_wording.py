"""What people read has one vocabulary, one style of units and one helper for plurals."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import polib

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
ROOMS = ("client/forge_client", "schema/forge_schema", "lambda/forge_functions")
STYLE = ROOT / "CONTRIBUTING.md"
AVOIDED = "## Words that Forge avoids"
# The record of what was decided earlier; pages in Hindi, and those made from the code.
NOT_READ = {"decisions", "hi", "reference"}
CODE = re.compile(r"^ *```.*?^ *```|`[^`]*`", re.MULTILINE | re.DOTALL)
# They run without our packages, in a job's own process or beside it.
ALONE = {"shim.py", "output.py", "mpi.py"}
UNIT = re.compile(r"\{\} (?:%|(?:s|min|h|d|[KMG]i?B)\b(?!/))")
NOUNS = (
    "attempt|byte|character|column|CPU|day|field|file|folder|GPU|hour|job|label|layer|level|line"
    "|machine|minute|node|parameter|point|rank|request|row|second|shell|test|worker"
)
PLURAL = re.compile(rf"\{{\}} (?:more |other )?(?:{NOUNS})s\b")


@cache
def avoided() -> dict[str, str]:
    """Return the words that CONTRIBUTING names as avoided, and what to write instead."""
    table = STYLE.read_text("utf-8").partition(AVOIDED)[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {word: better for words, better in rows[1:] for word in words.split(", ")}


def faults(text: str) -> list[str]:
    """Return the avoided words in a text, with the better ones."""
    plain = " ".join(CODE.sub("`", text).split()).lower()
    return [
        f"{word!r}: write {better}"
        for word, better in avoided().items()
        if re.search(rf"\b{word}\b", plain)
    ]


@cache
def modules() -> dict[Path, ast.Module]:
    """Return our packages' modules except migrations, parsed."""
    rooms = (*ROOMS, "worker/forge_worker")
    paths = (path for room in rooms for path in (ROOT / room).rglob("*.py"))
    return {p: ast.parse(p.read_text("utf-8")) for p in paths if "migrations" not in p.parts}


def messages(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the sentences in a module; a docstring counts if it may be a command's help."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    if "cli" in path.parts:
        skipped.clear()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield formatted(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in skipped and _sentence(node.value):
            yield str(node.value)


def _sentence(value: object) -> bool:
    return isinstance(value, str) and " " in value.strip()


def formatted(node: ast.JoinedStr) -> str:
    """Return an f-string with `{}` for each value."""
    return "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)


def documents() -> Iterator[Path]:
    """Yield the documents for users."""
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    pages = (ROOT / "docs").rglob("*.md")
    yield from (page for page in pages if not NOT_READ & set(page.relative_to(ROOT).parts))


def test_messages_and_help_texts_avoid_words() -> None:
    said = [(path, text) for path, tree in modules().items() for text in messages(path, tree)]
    assert len(said) > 1000
    assert [f"{p.name}: {text!r}: {f}" for p, text in said for f in faults(text)] == []


def test_pages_avoid_words() -> None:
    texts = polib.pofile(
        (ROOT / "lambda/forge_functions/dashboard/locales/hi.po").read_text("utf-8")
    )
    assert [f"{one.msgid}: {found}" for one in texts for found in faults(one.msgid)] == []


def test_documents_avoid_words() -> None:
    found: list[str] = []
    for page in documents():
        prose = page.read_text("utf-8").partition(AVOIDED)[0] if page == STYLE else None
        found += [f"{page.name}: {f}" for f in faults(prose or page.read_text("utf-8"))]
    assert found == []


def test_nobody_is_told_to_install_from_an_index_that_has_no_forge() -> None:
    # Whoever registers the name there could be installed.
    places = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "infra").rglob("*.yaml")]
    index = re.compile(r"pip install '?forge-queue|default: forge-queue", re.IGNORECASE)
    said = [str(path) for path in [*places, *modules()] if index.search(path.read_text("utf-8"))]
    assert said == []


def test_counts_and_units_are_formatted_by_one_function_each() -> None:
    """`counted`, `size_text` and `duration_text` in forge_schema/model/quantities.py."""
    wrong = [
        f"{path.name}:{node.lineno}: {formatted(node)!r}"
        for path, tree in modules().items()
        if path.name not in ALONE
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        and (UNIT.search(formatted(node)) or PLURAL.search(formatted(node)))
    ]
    assert wrong == []


def test_the_checks_find_what_they_look_for() -> None:
    assert faults("The job is Dead,\nand goes\non; `dead` is a state.") == [
        "'dead': write failed",
        "'goes on': write continue",
    ]
    found = [UNIT.search(text) or PLURAL.search(text) for text in ("{} s", "{} jobs", "{} MB/s")]
    assert [bool(one) for one in found] == [True, True, False]
