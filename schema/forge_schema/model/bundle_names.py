"""The file names allowed in a bundle, so that every worker can unpack it on any disk."""

import unicodedata

NAME_BYTES = 255
PATH_BYTES = 1024
DEPTH = 64
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in "123456789"
}


def fault(path: str) -> str | None:
    """Return what is wrong with an entry's path, or None."""
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if length > PATH_BYTES or path.count("/") >= DEPTH:
        return f"is over {PATH_BYTES} bytes long or {DEPTH} folders deep"
    if path.startswith("/"):
        return "is absolute"
    return next((found for name in path.split("/") if (found := _part_fault(name))), None)


def folded(path: str) -> str:
    """Return the path as a disk compares it that ignores case and Unicode normalisation."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _part_fault(name: str) -> str | None:
    if name in {"", ".", ".."}:
        return f"has {name!r} between its slashes"
    if "\\" in name or any(unicodedata.category(char) == "Cc" for char in name):
        return "has a backslash or a control character"
    if name.partition(".")[0].rstrip(" ").lower() in _DEVICES:
        return "is the name of a device on Windows"
    if len(name.encode()) > NAME_BYTES:
        return f"has a name over {NAME_BYTES} bytes"
    return None
