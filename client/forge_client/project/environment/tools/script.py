"""Read the packages that a script names in itself: the block `# /// script` of PEP 723."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_schema.model.bundles import list_text

from forge_client.project.environment.tables import wrong

ENDING = ".py"
BLOCK = re.compile(
    r"^# /// (?P<type>[a-zA-Z0-9-]+)[ \t]*$\s(?P<content>(^#(| .*)$\s)+)^# ///[ \t]*$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class ScriptBlock:
    """What a script asks for: packages, a range of Pythons ("" for any), and settings of uv."""

    requirements: tuple[str, ...]
    python: str
    uv: Mapping[str, Any]

    def needs_export(self, name: str) -> bool:
        """Tell whether uv has to export it: its compiler obeys no sources and indexes in it.

        Nor does that know a script by anything but the end of its `name`.
        """
        return bool(self.uv.get("sources") or self.uv.get("index")) or not name.endswith(ENDING)


def block(path: Path) -> ScriptBlock | None:
    """Return the block in a script; None if it has none, or is no text.

    Raises:
        ClientError: it is malformed, or there are several.
    """
    try:
        text = list_text(path.read_bytes())
    except (OSError, UnicodeError):
        return None
    blocks = [match for match in BLOCK.finditer(text) if match["type"] == "script"]
    if not blocks:
        return None
    if len(blocks) > 1:
        raise wrong(f"{path}: it has {len(blocks)} blocks `# /// script`", "keep one of them")
    content = "\n".join(line.removeprefix("#")[1:] for line in blocks[0]["content"].splitlines())
    try:
        return _block(tomllib.loads(content))
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        raise wrong(
            f"{path}: its block `# /// script` is not valid: {error}", "correct it"
        ) from error


def _block(document: dict[str, Any]) -> ScriptBlock:
    listed = document.get("dependencies", [])
    if not isinstance(listed, list) or not all(isinstance(line, str) for line in listed):
        raise TypeError("`dependencies` is not a list of text")
    uv = document.get("tool", {}).get("uv", {})
    return ScriptBlock(tuple(listed), str(document.get("requires-python", "")), uv)
