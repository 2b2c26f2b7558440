"""Build the documentation site: `make docs`.

The pages are those in docs/, and reference pages that are generated from the code. They are put
together in build/docs/pages, and the finished site is in build/docs/site. Any warning, such as a
link that leads nowhere, is an error.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import actions
import assistants
import commands
import fields
import http_api
import invariants
import pages
import settings
import tables
import views
from forge_client.project import schema

DOCS = Path(__file__).parents[1]
BUILD = DOCS.parent / "build" / "docs"
SCHEMA = "forge-toml.schema.json"
# English first: the others are folders of its site.
LANGUAGES = ("en", "hi")
GENERATED: Mapping[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "keys.md": fields.page,
    "settings.md": settings.page,
    "http-schema.md": http_api.page,
    "events.md": actions.page,
    "tables.md": tables.page,
    "views.md": views.page,
    "invariants.md": invariants.page,
}


def assemble(build: Path) -> None:
    """Put the sources of all pages below a folder, which is emptied first."""
    shutil.rmtree(build, ignore_errors=True)
    pages.copy(DOCS, build / "pages")
    reference = build / "pages" / "en" / "reference"
    reference.mkdir(parents=True, exist_ok=True)
    for name, page in GENERATED.items():
        (reference / name).write_text(page(), encoding="utf-8")
    # Editors name it: its place on the site stays.
    (build / "pages" / "en" / SCHEMA).write_text(schema.text(), encoding="utf-8")
    for language in LANGUAGES:
        (build / f"{language}.toml").write_text(_config(language), encoding="utf-8")


def build_all(folder: Path) -> int:
    """Build the site of each language from what was assembled; return the worst exit code."""
    zensical = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file"]
    configs = [folder / f"{language}.toml" for language in LANGUAGES]
    return max(subprocess.run([*zensical, one], check=False).returncode for one in configs)  # noqa: S603 - fixed arguments


def _config(language: str) -> str:
    own, common = (
        (Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
        for name in (language, "common")
    )
    return f"{own}\n{common.replace('LANGUAGE', language)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=BUILD, help="folder to build in; it is emptied")
    folder = parser.parse_args().to
    assemble(folder)
    code = build_all(folder)
    assistants.write(DOCS, folder / "site")
    sys.exit(code)
