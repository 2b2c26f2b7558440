"""Bundles: the names and links allowed in them, their segments' sizes, and locks of packages."""

import codecs
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from forge_schema.model.quantities import counted

# A folder of more than this many bytes becomes segments, none of which has more.
SEGMENT_BYTES = 32 << 20
# With what packing may add. Nobody may name a larger one, or more of them.
MOST_SEGMENT_BYTES, MOST_SEGMENTS = 64 << 20, 2000
MOST_LIST_BYTES = 1 << 20

# The stem of the file in a job's code that lists its packages, each with its version, and no other.
LOCK = ".forge-lock"
# A list that Forge wrote, for the worker to resolve.
PLAIN = ".forge-requirements"
# The folder of packages that lie beside the project, such as other members of its workspace.
BESIDE = ".forge-packages"
WRITTEN = (LOCK, PLAIN, BESIDE)
# The digest of a package in such a list, with the space before it.
PIP_HASH = re.compile(r"\s+--hash=\S+")
# Its first line, if the project asks for a Python: the versions that will do, the best first, and
# if there are several, what they are for people in brackets.
PYTHON = "# python "
# What a text may begin with; that of UTF-32 begins like that of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
CODING = re.compile(rb"#.*?coding[:=]\s*([-\w.]+)", re.ASCII)
# Variables of pip, and those by which uv knows the same. Both separate the values by spaces.
UV_FOR_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL",
    "PIP_NO_INDEX": "UV_OFFLINE",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_DEFAULT_TIMEOUT": "UV_HTTP_TIMEOUT",
    "PIP_RETRIES": "UV_HTTP_RETRIES",
    "PIP_CERT": "SSL_CERT_FILE",
}

# Files of a checkpoint below this name are files of the job's work folder.
WORK = ".forge-work"
MOST_TARGET_BYTES = 4095
NAME_BYTES = 255
PATH_BYTES = 1024
DEPTH = 64
# A backslash, or any of Unicode's control characters.
_REFUSED = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in "123456789"
}


def list_digest(data: bytes) -> str:
    """Return the digest of a list of segments, which names the bundle.

    It is no SHA-256: whoever uploads bytes may run what their SHA-256 names, and the list's bytes
    do not prove that somebody has the segments.
    """
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def name_fault(path: str) -> str | None:
    """Return what is wrong with an entry's path, or None."""
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if length > PATH_BYTES or path.count("/") >= DEPTH:
        return f"is over {counted(PATH_BYTES, 'byte')} long or {counted(DEPTH, 'folder')} deep"
    if path.startswith("/"):
        return "is absolute"
    return next((fault for name in path.split("/") if (fault := _part_fault(name))), None)


def link_fault(name: str, target: str) -> str | None:
    """Return what is wrong with the target of the link at this path, or None.

    All that a target goes through is named as in a bundle; the link's own folder is no link.
    """
    names = target.split("/")
    up = next((number for number, part in enumerate(names) if part != ".."), len(names))
    if not stays_inside(name, target):
        return "leads out of the bundle"
    below = "/".join(names[up:])
    return None if target == "." or (up and not below) else name_fault(below)


def stays_inside(path: str, target: str) -> bool:
    """Tell whether a link at `path`, relative to its folder, cannot lead out of it.

    It goes up first, at most to the folder, and then only down. So it also stays inside if a name
    on its way down is such a link itself.
    """
    parts = PurePosixPath(target).parts
    if not target or "\0" in target or target.startswith("/") or len(target) > MOST_TARGET_BYTES:
        return False
    ups = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    return ups <= depth(path) and ".." not in parts[ups:]


def depth(path: str) -> int:
    """Return how many folders are above a path, up to the one that its links may not leave."""
    parts = PurePosixPath(path).parts
    return len(parts) - (2 if parts[:1] == (WORK,) else 1)


def destination(path: str, target: str) -> str:
    """Return where a link that stays inside leads: a path relative to its folder, "" for itself."""
    place = list(PurePosixPath(path).parent.parts)
    for part in PurePosixPath(target).parts:
        if part == "..":
            place.pop()
        else:
            place.append(part)
    return "/".join(place)


def below_a_link(paths: Iterable[str], links: Iterable[str]) -> str | None:
    """Return a path that lies below one of the links, so that it would be reached through it."""
    link_paths = {str(PurePosixPath(link)) for link in links}
    if not link_paths:
        return None
    for path in paths:
        if any(str(above) in link_paths for above in PurePosixPath(path).parents):
            return path
    return None


def folded_name(path: str) -> str:
    """Return the path as a disk compares it that ignores case and Unicode normalisation."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _part_fault(name: str) -> str | None:
    if name in {"", ".", ".."}:
        return f"has {name!r} between its slashes"
    if _REFUSED.search(name):
        return "has a backslash or a control character"
    if name.partition(".")[0].rstrip(" ").lower() in _DEVICES:
        return "is the name of a device on Windows"
    if len(name.encode()) > NAME_BYTES:
        return f"has a name over {counted(NAME_BYTES, 'byte')}"
    return None


def list_text(data: bytes) -> str:
    """Return the text of a list of packages, in the encoding that it names as pip reads it.

    Raises:
        UnicodeError: it is not of that encoding, or not UTF-8 if it names none.
    """
    for mark, encoding in MARKS:
        if data.startswith(mark):
            return _with_line_feeds(data[len(mark) :].decode(encoding))
    *head, rest = data.split(b"\n", 2)
    named_encoding = next(
        (match[1].decode() for line in head if (match := CODING.match(line))), "utf-8"
    )
    # Whoever writes the text again writes it as UTF-8.
    plain = [CODING.sub(b"#", line) for line in head]
    try:
        return _with_line_feeds(b"\n".join((*plain, rest)).decode(named_encoding))
    except LookupError as error:
        raise UnicodeError(f"there is no encoding {named_encoding}") from error


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def uv_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which uv looks for packages where pip would."""
    indexes = {
        uv: variables[pip].replace(" ", ",") if uv == "UV_FIND_LINKS" else variables[pip]
        for pip, uv in UV_FOR_PIP.items()
        if variables.get(pip) and uv not in variables
    }
    # pip takes the best of all indexes, and resolved the lists of its users so.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **indexes}
