"""Stands between playwright and Firefox, and grants what Firefox does not know: a colour scheme.

Playwright speaks WebDriver BiDi with a Firefox as it is, and sets a colour scheme for every window,
also where none is wished for. Debian's Firefox has no command for that and refuses it, and the
window with it. Playwright takes this program for Firefox.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from threading import Thread
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import serve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from websockets.sync.connection import Connection
    from websockets.sync.server import Server, ServerConnection

LISTENS = re.compile(r"(WebDriver BiDi listening on )(ws://\S+)")
UNKNOWN = '"emulation.setMediaFeaturesOverride"'


def main() -> None:
    """Start Firefox with our own arguments, and serve one session until either side ends it."""
    with subprocess.Popen(["firefox-esr", *sys.argv[1:]], stderr=subprocess.PIPE, text=True) as own:
        assert own.stderr is not None
        address = _address(own.stderr)

        def session(playwright: ServerConnection) -> None:
            with connect(f"{address}/session", max_size=None, compression=None) as firefox:
                Thread(target=_pass_on, args=(firefox, playwright), daemon=True).start()
                _pass_on(playwright, firefox, grants=True)
            own.terminate()

        with serve(session, "127.0.0.1", 0, max_size=None, compression=None) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            _say(f"WebDriver BiDi listening on {_url(server)}")
            for line in own.stderr:
                _say(line.rstrip())


def _address(lines: Iterable[str]) -> str:
    for line in lines:
        if found := LISTENS.search(line):
            return found[2]
        _say(line.rstrip())
    raise SystemExit("Firefox ended before it listened")


def _url(server: Server) -> str:
    host, port = server.socket.getsockname()[:2]
    return f"ws://{host}:{port}"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _pass_on(source: Connection, target: Connection, *, grants: bool = False) -> None:
    try:
        for message in source:
            if grants and UNKNOWN in message[:200]:
                number = json.loads(message)["id"]
                source.send(json.dumps({"type": "success", "id": number, "result": {}}))
            else:
                target.send(message)
    except ConnectionClosed:
        pass
    target.close()


if __name__ == "__main__":
    main()
