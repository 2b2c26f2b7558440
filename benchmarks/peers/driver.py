"""A queue's process, which is asked and answers in lines."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.peers.contenders import Contender

ROOT = Path(__file__).resolve().parents[2]
END_S = 20


@dataclass(frozen=True)
class Places:
    """Where the peers' programs run: the Python of the one environment, the folder of the other."""

    python: Path | None
    node: Path | None


class Driver:
    """One process of a queue."""

    def __init__(self, contender: Contender, url: str, places: Places, said: Path) -> None:
        self._contender = contender
        self._said = said
        with said.open("ab") as log:
            self._process = subprocess.Popen(
                _command(contender, places),
                cwd=ROOT if not contender.node else places.node,
                env=_environment(url),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ask(self, verb: str, **params: object) -> None:
        """Ask; `answer` waits for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **params}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:  # noqa: ANN401  what JSON holds
        """Return the answer.

        Raises:
            AssertionError: the process failed.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self._contender.name}: {self._said.read_text()[-3000:]}"
        return json.loads(line)

    def call(self, verb: str, **params: object) -> Any:  # noqa: ANN401  as above
        """Ask and return the answer."""
        self.ask(verb, **params)
        return self.answer()

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def drivers(
    contender: Contender, url: str, places: Places, folder: Path, number: int
) -> Iterator[Sequence[Driver]]:
    """Start processes, and end them."""
    said = folder / f"{contender.module}.log"
    made = [Driver(contender, url, places, said) for _ in range(number)]
    try:
        yield made
    finally:
        for one in made:
            one.end()


def _command(contender: Contender, places: Places) -> list[str]:
    if contender.node:
        return ["node", f"{contender.module}.mjs"]
    python = places.python if contender.package else Path(sys.executable)
    return [str(python), "-m", f"benchmarks.peers.{contender.module}"]


def _environment(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks" / "queue")]),
        "PEERS_URL": url,
        "PGHOST": parse_qs(parts.query)["host"][0],
        "PGUSER": parts.username or "",
        "PGDATABASE": parts.path.removeprefix("/"),
    }
