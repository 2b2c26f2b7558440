"""A server of the SFTP protocol, version 3, on its standard input and output, for scp and editors.

It runs inside the job with the job's own Python, since images rarely have OpenSSH's. Standard
library only, Python 3.8 or later, run with `python -I -S -c`.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 3
OK, END, MISSING, DENIED, FAILED, BAD, UNKNOWN = 0, 1, 2, 3, 4, 5, 8
STATUS, HANDLE, DATA, NAME, ATTRIBUTES = 101, 102, 103, 104, 105
SIZE, OWNER, MODE, TIMES = 1, 2, 4, 8
READ, WRITE, APPEND, CREATE, TRUNCATE, EXCLUSIVE = 1, 2, 4, 8, 16, 32
# Of a directory, in one answer.
MOST_NAMES = 100
MOST_BYTES = 256 << 10
LONGEST = 1 << 20


class NoMore(Exception):
    """There is no more to read."""


class FieldReader:
    """The fields of one request."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, form: str = "!I") -> int:
        """Return the next number."""
        size = struct.calcsize(form)
        (value,) = struct.unpack(form, self._data[:size])
        self._data = self._data[size:]
        return int(value)

    def text(self) -> bytes:
        """Return the next string."""
        size = self.number()
        text, self._data = self._data[:size], self._data[size:]
        return text

    def attributes(self) -> dict[str, Any]:
        """Return the attributes that are set."""
        flags = self.number()
        fields: dict[str, Any] = {}
        if flags & SIZE:
            fields["size"] = self.number("!Q")
        if flags & OWNER:
            fields["owner"] = (self.number(), self.number())
        if flags & MODE:
            fields["mode"] = stat.S_IMODE(self.number())
        if flags & TIMES:
            fields["times"] = (self.number(), self.number())
        return fields


class SftpServer:
    """Answers requests, one after another."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._requests, self._answers = requests, answers
        self._files: dict[bytes, int] = {}
        self._folders: dict[bytes, list[bytes]] = {}
        self._places: dict[bytes, bytes] = {}
        self._last = 0
        self._verbs: dict[int, Callable[[FieldReader], tuple[int, bytes]]] = {
            3: self._open,
            4: self._close,
            5: self._read,
            6: self._write,
            7: lambda it: _attributes(os.lstat(it.text())),
            8: lambda it: _attributes(os.fstat(self._files[it.text()])),
            9: lambda it: _set(it.text(), it.attributes()),
            10: lambda it: _set(self._files[it.text()], it.attributes()),
            11: self._open_folder,
            12: self._list,
            13: lambda it: _done(os.unlink, it.text()),
            14: lambda it: _done(os.mkdir, it.text(), it.attributes().get("mode", 0o777)),
            15: lambda it: _done(os.rmdir, it.text()),
            16: lambda it: _names([(os.path.realpath(it.text() or b"."), None)]),
            17: lambda it: _attributes(os.stat(it.text())),
            18: self._rename,
            19: lambda it: _names([(os.readlink(it.text()), None)]),
            # OpenSSH sends the target first, against the draft.
            20: lambda it: _done(os.symlink, it.text(), it.text()),
        }

    def run(self) -> None:
        """Serve until the input ends."""
        try:
            while True:
                (size,) = struct.unpack("!I", self._take(4))
                if not 0 < size <= LONGEST:
                    return
                request = self._take(size)
                self._send(self._answer(request[0], request[1:]))
        except (NoMore, OSError):
            return

    def _take(self, size: int) -> bytes:
        data = self._requests.read(size)
        if len(data) < size:
            raise NoMore
        return data

    def _send(self, answer: bytes) -> None:
        self._answers.write(struct.pack("!I", len(answer)) + answer)
        self._answers.flush()

    def _answer(self, kind: int, data: bytes) -> bytes:
        if kind == 1:
            return struct.pack("!BI", 2, VERSION)
        request = FieldReader(data)
        try:
            number = request.number()
        except struct.error:
            raise NoMore from None
        try:
            verb = self._verbs.get(kind)
            answer, rest = verb(request) if verb else _status(UNKNOWN, "it is not supported")
        except FileNotFoundError as error:
            answer, rest = _status(MISSING, _reason(error))
        except PermissionError as error:
            answer, rest = _status(DENIED, _reason(error))
        except EOFError:
            answer, rest = _status(END, "end of file")
        except OSError as error:
            answer, rest = _status(FAILED, _reason(error))
        except (KeyError, ValueError, struct.error):
            answer, rest = _status(BAD, "the request is invalid")
        return struct.pack("!BI", answer, number) + rest

    def _handle(self) -> bytes:
        self._last += 1
        return str(self._last).encode()

    def _open(self, request: FieldReader) -> tuple[int, bytes]:
        path, wanted = request.text(), request.number()
        mode = request.attributes().get("mode", 0o666)
        kinds = {READ: os.O_RDONLY, WRITE: os.O_WRONLY, READ | WRITE: os.O_RDWR}
        flags = kinds[wanted & (READ | WRITE)]
        for bit, flag in (
            (APPEND, os.O_APPEND),
            (CREATE, os.O_CREAT),
            (TRUNCATE, os.O_TRUNC),
            (EXCLUSIVE, os.O_EXCL),
        ):
            flags |= flag if wanted & bit else 0
        handle = self._handle()
        self._files[handle] = os.open(path, flags, mode)
        return HANDLE, _text(handle)

    def _open_folder(self, request: FieldReader) -> tuple[int, bytes]:
        path, handle = request.text(), self._handle()
        self._folders[handle] = [b".", b"..", *os.listdir(path)]
        self._places[handle] = path
        return HANDLE, _text(handle)

    def _close(self, request: FieldReader) -> tuple[int, bytes]:
        handle = request.text()
        if handle in self._files:
            return _done(os.close, self._files.pop(handle))
        del self._folders[handle]
        return _status(OK, "")

    def _read(self, request: FieldReader) -> tuple[int, bytes]:
        file, at = self._files[request.text()], request.number("!Q")
        data = os.pread(file, min(request.number(), MOST_BYTES), at)
        if not data:
            raise EOFError
        return DATA, _text(data)

    def _write(self, request: FieldReader) -> tuple[int, bytes]:
        file, at, data = self._files[request.text()], request.number("!Q"), request.text()
        while data:
            size = os.pwrite(file, data, at)
            data, at = data[size:], at + size
        return _status(OK, "")

    def _list(self, request: FieldReader) -> tuple[int, bytes]:
        handle = request.text()
        left, place = self._folders[handle], self._places[handle]
        if not left:
            raise EOFError
        names, self._folders[handle] = left[:MOST_NAMES], left[MOST_NAMES:]
        return _names([(name, _looked(os.path.join(place, name))) for name in names])

    def _rename(self, request: FieldReader) -> tuple[int, bytes]:
        old, new = request.text(), request.text()
        if os.path.lexists(new):
            raise FileExistsError("the new name exists")
        return _done(os.rename, old, new)


def _looked(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _set(file: Any, wanted: dict[str, Any]) -> tuple[int, bytes]:  # noqa: ANN401 - a path or a descriptor
    if "size" in wanted:
        os.truncate(file, wanted["size"])
    if "owner" in wanted:
        os.chown(file, *wanted["owner"])
    if "mode" in wanted:
        os.chmod(file, wanted["mode"])
    if "times" in wanted:
        os.utime(file, wanted["times"])
    return _status(OK, "")


def _done(act: Callable[..., object], *given: object) -> tuple[int, bytes]:
    act(*given)
    return _status(OK, "")


def _status(code: int, message: str) -> tuple[int, bytes]:
    return STATUS, struct.pack("!I", code) + _text(message.encode()) + _text(b"en")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _attributes(status: os.stat_result) -> tuple[int, bytes]:
    return ATTRIBUTES, _packed(status)


def _packed(status: os.stat_result | None) -> bytes:
    if status is None:
        return struct.pack("!I", 0)
    flags = SIZE | OWNER | MODE | TIMES
    times = [max(0, min(int(at), 0xFFFFFFFF)) for at in (status.st_atime, status.st_mtime)]
    numbers = (flags, status.st_size, status.st_uid, status.st_gid, status.st_mode, *times)
    return struct.pack("!IQIIIII", *numbers)


def _names(entries: list[tuple[bytes, os.stat_result | None]]) -> tuple[int, bytes]:
    parts = [_text(name) + _text(_line(name, it)) + _packed(it) for name, it in entries]
    return NAME, struct.pack("!I", len(entries)) + b"".join(parts)


def _line(name: bytes, status: os.stat_result | None) -> bytes:
    """Return the line that `ls -l` would show."""
    if status is None:
        return name
    when = time.strftime("%b %d %Y", time.localtime(status.st_mtime))
    start = (
        f"{stat.filemode(status.st_mode)} {status.st_nlink:3} {status.st_uid:<8} {status.st_gid:<8}"
    )
    return f"{start} {status.st_size:8} {when} ".encode() + name


def _text(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


if __name__ == "__main__":
    SftpServer(sys.stdin.buffer, sys.stdout.buffer).run()
