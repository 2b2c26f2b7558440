"""The notes of a release: the newest part of the changelog."""

import re
import sys
from pathlib import Path

# A part begins at its heading, `## [0.2.0] - 2026-11-28`, and ends at the next one.
PART = re.compile(
    r"^## \[(?P<version>[^\]]+)\][^\n]*\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)


def write(changelog: Path, output: Path) -> Path:
    """Write the newest part into a file of the folder, and return it."""
    part = PART.search(changelog.read_text(encoding="utf-8"))
    if part is None or not part["text"].strip():
        sys.exit(f"dist: {changelog} has no part with text")
    file = output / "NOTES.md"
    file.write_text(f"# Forge {part['version']}\n\n{part['text'].strip()}\n", encoding="utf-8")
    return file
