"""Where a key stands in a TOML text, which its parser does not tell."""

import re
import tomllib

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def place(text: str, path: tuple[str, ...]) -> tuple[int, int]:
    """Return the line and column of the key at `path`, or of the nearest table that holds it."""
    found = (1, 1)
    depth = 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = at = _parts(header[1])
            column = header.start(1) + 1
        elif key := _KEY.match(line):
            at = (*table, *_parts(key[1]))
            column = key.start(1) + 1
        else:
            continue
        if len(at) > depth and path[: len(at)] == at:
            found, depth = (number, column), len(at)
    return found


def fault(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Return a parser's message with the place in front, which for it may be "end of document"."""
    what, _, at = str(error).removesuffix(")").rpartition(" (at ")
    lines = text.splitlines() or [""]
    where = at if at.startswith("line ") else f"line {len(lines)}, column {len(lines[-1]) + 1}"
    return f"{where}: not TOML: {what}"


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
