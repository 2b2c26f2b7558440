"""Closes the folder of a `forge up`, and lets the user in who runs Postgres for root."""

import os
import pwd
import struct
from contextlib import suppress
from pathlib import Path
from stat import S_ISLNK

from forge_client.running import FILE

ATTRIBUTE = "system.posix_acl_access"
VERSION = 2
NOBODY = 0xFFFFFFFF
OWNER, USER, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
READ, PASS = 4, 1
CLOSED = 0o700
STORE = "store"
Entry = tuple[int, int, int]  # kind, rights, id: acl(5)


def made(folder: Path) -> None:
    """Make a folder that is closed to other users, unless it is there."""
    folder.mkdir(mode=CLOSED, parents=True, exist_ok=True)


def close(folder: Path) -> None:
    """Close a folder that is only ours to all other users: it has code and results.

    What is not of a `forge up`, such as a home folder, stays as it is.

    Raises:
        OSError: it cannot be closed.
    """
    status = folder.stat()
    ours = (folder / STORE).is_dir() or all(path.name == FILE for path in folder.iterdir())
    if status.st_uid == os.geteuid() and ours and status.st_mode & 0o077:
        # Whoever runs Postgres is let in again when it starts.
        folder.chmod(CLOSED)


def let_pass(user: pwd.struct_passwd, path: Path) -> None:
    """Give a user access to `path`: each closed folder above it gets an ACL entry for that user.

    Without ACL support in the file system, everybody may traverse the folder, but not list it.

    Raises:
        PermissionError: a folder belongs to another user.
    """
    for folder in reversed(path.absolute().resolve().parents):
        status = folder.stat()
        if status.st_mode & 0o001 or (status.st_uid == user.pw_uid and status.st_mode & 0o100):
            continue
        try:
            _allow(folder, user.pw_uid)
        except (OSError, AttributeError):  # AttributeError: only Linux has these calls
            folder.chmod(status.st_mode | 0o001)


def let_read(folder: Path) -> None:
    """Let everybody read the contents of a folder, as a umask of 022 would have."""
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if S_ISLNK(mode):
            continue
        wanted = mode | 0o444 | (0o111 if mode & 0o100 else 0)
        if wanted != mode:
            path.chmod(wanted)


def _allow(folder: Path, user: int) -> None:
    entries = _entries(folder)
    before = next((rights for kind, rights, who in entries if (kind, who) == (USER, user)), 0)
    kept = [entry for entry in entries if entry[0] != MASK and (entry[0], entry[2]) != (USER, user)]
    kept.append((USER, before | PASS, user))
    mask = 0
    for kind, rights, _ in kept:
        mask |= rights if kind not in {OWNER, OTHERS} else 0
    # The kernel requires them ordered by kind, and users by id.
    packed = [
        struct.pack("<HHI", *entry) for entry in sorted([*kept, (MASK, mask, NOBODY)], key=_rank)
    ]
    os.setxattr(folder, ATTRIBUTE, struct.pack("<I", VERSION) + b"".join(packed))


def _rank(entry: Entry) -> tuple[int, int]:
    return entry[0], entry[2]


def _entries(folder: Path) -> list[Entry]:
    with suppress(OSError):
        packed = os.getxattr(folder, ATTRIBUTE)
        return [struct.unpack_from("<HHI", packed, at) for at in range(4, len(packed), 8)]
    mode = folder.stat().st_mode
    return [
        (OWNER, mode >> 6 & 7, NOBODY),
        (GROUP, mode >> 3 & 7, NOBODY),
        (OTHERS, mode & 7, NOBODY),
    ]
