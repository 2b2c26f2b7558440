"""The named pipe through which a container's output reaches its log.

The engine's own log would reorder stdout and stderr, terminate the last line, and corrupt output
that is not UTF-8; its streams end early if the engine restarts.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import stat
import sys
import threading
from pathlib import Path

import structlog

from forge_worker.runners.process.output import Output

PACKAGES = str(Path(__file__).parents[3])
MARK = "forge-pipes"
BOOT = (
    f"import sys; sys.path.insert(0, {PACKAGES!r}); "
    "from forge_worker.runners.docker.pipe_keeper import main; main()"
)

log = structlog.get_logger(__name__)


class Keeping:
    """The pipe keeper: one program for all pipes of this process."""

    def __init__(self) -> None:
        self._orders: int | None = None
        self._lock = threading.Lock()

    def keep(self, pipe: Path, output: Path) -> None:
        """Have a pipe kept open for its log; if that fails, the job runs all the same."""
        order = json.dumps([str(pipe), str(output.absolute())]).encode() + b"\n"
        with self._lock:
            try:
                self._tell(order)
            except OSError as error:
                log.warning("pipe_keeper_missing", pipe=str(pipe), error=str(error))

    def _tell(self, order: bytes) -> None:
        if self._orders is not None:
            try:
                os.write(self._orders, order)
            except BrokenPipeError:  # it was killed
                os.close(self._orders)
                self._orders = None
            else:
                return
        self._orders = start()
        os.write(self._orders, order)


def start() -> int:
    """Start the program and return its stdin; `OSError` if it cannot be started."""
    theirs, ours = os.pipe()
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", BOOT, MARK, str(os.getpid())],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=[],
        )
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return ours


keeping = Keeping()


class Copier:
    """One thread that copies from all pipes of this process to their logs. Thread-safe."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        # Held while something is copied.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, output: Output) -> None:
        """Copy from a pipe from now on."""
        with self._lock:
            self._selector.register(output.source, selectors.EVENT_READ, output)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="output", daemon=True)
                self._thread.start()

    def remove(self, output: Output) -> None:
        """Stop copying from a pipe: once this returns, only the caller uses it."""
        with self._lock, contextlib.suppress(KeyError):
            self._selector.unregister(output.source)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                with self._lock:
                    # It may have been removed since, and its number given to another.
                    if self._selector.get_map().get(key.fd) is key:
                        self._copy(key.data)

    def _copy(self, output: Output) -> None:
        try:
            output.turn()
        except OSError as error:
            log.warning("output_not_copied", error=str(error))
            self._selector.unregister(output.source)


copier = Copier()


class Pipe:
    """The named pipe at `path`, from which the output is copied to `log`.

    Use `made` for a new pipe, and `found` for that of a running container.
    """

    def __init__(self, path: Path, log: Path) -> None:
        self.path = path
        # Also opened for writing, so that it never reads as ended while the job has no writer.
        self._source = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._output = Output(self._source, log)
        keeping.keep(path, log)
        self._lock = threading.Lock()
        self._closed = False
        copier.add(self._output)

    @classmethod
    def made(cls, path: Path, log: Path, *, uid: int, gid: int) -> Pipe:
        """Create a pipe that `uid` may write to.

        Raises:
            OSError: the pipe or the log cannot be created.
        """
        log.touch(0o644)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        os.chown(path, uid, gid, follow_symlinks=False)
        return cls(path, log)

    @classmethod
    def reopen(cls, path: Path, log: Path) -> Pipe:
        """Open the pipe of an earlier agent.

        Raises:
            OSError: it does not exist, or the log cannot be written.
        """
        if not stat.S_ISFIFO(path.lstat().st_mode):
            raise OSError(f"{path} is not a pipe")
        return cls(path, log)

    def finish(self, last_words: bytes = b"") -> str:
        """Copy the rest, once nobody can write to the pipe, and remove the pipe.

        Returns:
            What went wrong with the log, or "".
        """
        with self._lock:
            if not self._closed:
                copier.remove(self._output)
                with contextlib.suppress(OSError):
                    self._output.drain()
                self._output.append(last_words)
                self._close()
                self._closed = True
        return self._output.error

    def _close(self) -> None:
        self._output.close()
        os.close(self._source)
        self.path.unlink(missing_ok=True)
