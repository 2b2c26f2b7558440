"""The documentation site is built without a warning, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from forge_schema.read.audit import ACTIONS

ROOT = Path(__file__).parents[3]
SITE = ROOT / "docs" / "site"
REFERENCE = re.compile(r'(?:href|src)="?([^"# >]+)')
NAV = re.compile(r'"([\w/.-]+\.md)"')
# An action as the statements write it: after the time and the actor.
ACTION = re.compile(
    r"(?:forge_now\(\)|\bnow), "
    r"(?:%\(actor\)s|actor|approver|%\(acts_for\)s|acts_for|'[^']*'(?: \|\| id)?),\s+"
    r"((?:CASE|coalesce\()[^\n]*|'[^']+')"
)
NOTED = re.compile(r'\.note\([\w"]+, "(\w+)"')
# Those of the attempts, which `audit` adds, and the two commands that a parameter names.
ELSEWHERE = {"submitted", "dispatched", "ended", "drain", "stop", "restored", "refused"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    built = subprocess.run(
        [sys.executable, SITE / "build.py", "--to", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def test_every_link_leads_to_a_page_or_a_picture(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 50
    for page in pages:
        links = {one for one in REFERENCE.findall(page.read_text("utf-8")) if ":" not in one}
        assert [one for one in links if not (page.parent / one).exists()] == [], page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]*?"(https?://[^"]*)', page.read_text("utf-8"))
        assert loaded == [], page


def test_every_page_is_in_the_navigation() -> None:
    for language, folder in (("en", ROOT / "docs"), ("hi", ROOT / "docs" / "hi")):
        listed = NAV.findall((SITE / f"{language}.toml").read_text("utf-8"))
        pages = {str(page.relative_to(folder)) for page in folder.rglob("*.md")}
        unlisted = {page for page in pages if page.startswith(("decisions/", "hi/"))}
        assert {page for page in listed if not page.startswith("reference/")} == pages - unlisted


def test_every_action_of_the_audit_trail_is_explained() -> None:
    statements = [path.read_text("utf-8") for path in (ROOT / "schema").rglob("*.sql")]
    written = [
        action
        for text in statements
        if "INSERT INTO event" in text
        for found in ACTION.findall(text)
        for action in re.findall(r"'([^']+)'", found)
    ]
    noted = [
        action
        for path in (ROOT / "lambda").rglob("*.py")
        for action in NOTED.findall(path.read_text("utf-8"))
    ]
    there = set(written) | set(noted) | ELSEWHERE
    assert there == set(ACTIONS), "explain it in ACTIONS in schema/forge_schema/read/audit.py"
