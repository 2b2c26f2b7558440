"""The pages that people write, as the site needs them."""

import re
import shutil
from pathlib import Path

LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LANGUAGES = ("hi",)
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
    """Return a page with its links out of docs/ as plain text: the site has no source files."""

    def replaced(found: re.Match[str]) -> str:
        target = found["target"].partition("#")[0]
        inside = (folder / target).resolve().is_relative_to(docs.resolve())
        return found[0] if "://" in target or inside or found["image"] else found["text"]

    parts = CODE.split(text)
    return "".join(part if CODE.match(part) else LINK.sub(replaced, part) for part in parts)
