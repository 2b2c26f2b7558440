"""The pages that people write, as the site needs them."""

import re
import shutil
from collections.abc import Mapping
from os.path import relpath
from pathlib import Path

LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LANGUAGES = ("hi",)
# What some pages of reference are made from: in the tree, links lead there.
SOURCES: Mapping[str, str] = {
    "schema/forge_schema/read/views.toml": "views.md",
    "lambda/forge_functions/routes/workers/protocol.py": "http-schema.md",
    "schema/forge_schema/model/spec/job_fields.py": "keys.md",
    "schema/forge_schema/service/service.py": "http-schema.md",
    "schema/forge_schema/sweeper/main.py": "settings.md",
    "tests/chaos/check/invariants.py": "invariants.md",
    "worker/forge_worker/settings/sections.py": "settings.md",
}
LEFT_OUT = shutil.ignore_patterns("site", "*.py", "__pycache__", *LANGUAGES)


def copy(docs: Path, to: Path) -> None:
    """Copy the pages of each language below a folder, with links that work on the site."""
    shutil.copytree(docs, to / "en", ignore=LEFT_OUT)
    for language in LANGUAGES:
        shutil.copytree(docs / language, to / language)
    for page in to.rglob("*.md"):
        # English is in docs/ itself.
        source = docs / page.relative_to(to / "en" if page.is_relative_to(to / "en") else to)
        text = page.read_text(encoding="utf-8")
        page.write_text(linked(text, source.parent, docs), encoding="utf-8")


def linked(text: str, folder: Path, docs: Path) -> str:
    """Return a page with its links to source files as plain text, or to what is made from them."""

    def replaced(found: re.Match[str]) -> str:
        target, sign, anchor = found["target"].partition("#")
        source = (folder / target).resolve()
        page = SOURCES.get(relpath(source, docs.parent))
        if page and not folder.is_relative_to(docs / "hi"):
            return f"[{found['text']}]({relpath(docs / 'reference' / page, folder)}{sign}{anchor})"
        inside = source.is_relative_to(docs.resolve())
        return found[0] if "://" in target or inside or found["image"] else found["text"]

    parts = CODE.split(text)
    return "".join(part if CODE.match(part) else LINK.sub(replaced, part) for part in parts)
