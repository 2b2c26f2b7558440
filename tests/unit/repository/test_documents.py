"""The documents' links work, and their lines fit on a screen."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("docs", "tests", "infra", "examples", "benchmarks")
CODE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
STEP = re.compile(r"^## \d+\. \[[^]]*\]\(([^)]*)\): `?([\w. ]+)`?$", re.MULTILINE)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
WIDTH = 100
# A row below an empty line, unless it is the head of a table.
APART = re.compile(r"\n\n(\|.*)\n(?!\|[-| :]+\|\n)")
# What somebody who reads all English pages has to read, but for those made from the code.
MOST_WORDS = 72_000
TRANSLATIONS = sorted((ROOT / "docs" / "hi").rglob("*.md"))
# The last line of a translation: the digest of what it was made from.
MADE_OF = re.compile(r"<!-- of the English page ([0-9a-f]{12}) -->\n\Z")
FENCED = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def _documents() -> tuple[Path, ...]:
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    return (*sorted(ROOT.glob("*.md")), *sorted(below))


each_document = pytest.mark.parametrize(
    "path", _documents(), ids=lambda path: str(path.relative_to(ROOT))
)


@cache
def _prose(path: Path) -> str:
    return CODE.sub("", path.read_text(encoding="utf-8"))


@cache
def _anchors(path: Path) -> set[str]:
    """Return the names that GitHub gives to a document's headings."""
    bare = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(_prose(path)))
    return {heading.replace(" ", "-") for heading in bare}


def _leads_nowhere(path: Path, target: str, anchor: str) -> bool:
    found = path.parent / target if target else path
    if not found.exists():
        return True
    return bool(anchor) and found.suffix == ".md" and anchor not in _anchors(found)


def _too_long(line: str) -> bool:
    """Tell whether a line should be wrapped: the rows of a table and a single word cannot be."""
    return len(line) > WIDTH and not line.startswith("|") and " " in line.strip()


@each_document
def test_lines_fit_on_a_screen(path: Path) -> None:
    assert [line for line in _prose(path).splitlines() if _too_long(line)] == []


@each_document
def test_every_relative_link_of_a_document_resolves(path: Path) -> None:
    links = LINK.findall(_prose(path))
    assert [link for link in links if _leads_nowhere(path, *link)] == []


@each_document
def test_the_rows_of_a_table_follow_each_other(path: Path) -> None:
    """Since rows after an empty line are shown as one paragraph full of bars."""
    assert APART.findall(_prose(path)) == []


def test_the_pages_are_no_longer_than_their_readers_have_time_for() -> None:
    pages = [path for path in _documents() if path.is_relative_to(ROOT / "docs")]
    apart = set(TRANSLATIONS)
    words = sum(len(path.read_text("utf-8").split()) for path in pages if path not in apart)
    assert words > MOST_WORDS // 2
    assert words <= MOST_WORDS, "cut what a page repeats of another, and figures of the past"


def test_a_job_in_ten_files_names_a_function_of_each() -> None:
    page = ROOT / "docs" / "a-job-in-ten-files.md"
    steps = STEP.findall(page.read_text(encoding="utf-8"))
    assert len(steps) == 10
    for target, name in steps:
        source = (page.parent / target).read_text(encoding="utf-8")
        assert target.endswith(".sql") or f"def {name.rpartition('.')[2]}(" in source, target


@pytest.mark.parametrize("path", TRANSLATIONS, ids=lambda path: path.stem)
def test_a_translation_is_not_older_than_its_original(path: Path) -> None:
    original = ROOT / "docs" / path.relative_to(ROOT / "docs" / "hi")
    digest = hashlib.sha256(original.read_bytes()).hexdigest()[:12]
    made_of = MADE_OF.search(path.read_text(encoding="utf-8"))
    assert made_of is not None, "its last line names no English page"
    assert made_of[1] == digest, f"bring it up to date with {original.name}, then write {digest}"


@pytest.mark.parametrize("path", TRANSLATIONS, ids=lambda path: path.stem)
def test_a_translation_types_what_its_original_types(path: Path) -> None:
    original = ROOT / "docs" / path.relative_to(ROOT / "docs" / "hi")
    assert _typed(path) <= _typed(original)


def _typed(path: Path) -> set[str]:
    """Return the commands in a page's blocks, without prompts and comments."""
    blocks = FENCED.findall(path.read_text(encoding="utf-8"))
    lines = (
        line.partition("  #")[0].removeprefix("$ ").strip()
        for b in blocks
        for line in b.splitlines()
    )
    return {line for line in lines if line.startswith(("forge", "pip", "export"))}
