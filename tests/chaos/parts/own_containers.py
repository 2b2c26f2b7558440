"""The bed's own container engine, with an image that has all that a run's jobs need."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support.engine.images import BASE_IMAGE
from support.engine.own_engine import FILL, OwnEngine, OwnPodman
from support.workers.runners import base_image_is_here

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = "forge-chaos:latest"
PROGRAMS = "/bin/sh /bin/sleep /bin/mv /bin/rm /bin/head /bin/tail /bin/tee /bin/sha256sum"
# With the libraries of its modules, such as SQLite's.
PYTHON, MODULES = "/usr/bin/python3", "/usr/lib/python3.*"
LOADED = f"ldd {PROGRAMS} {PYTHON} {MODULES}/lib-dynload/*.so"
LIBRARIES = f"$({LOADED} | grep -o '[[:space:]]/lib[^ ]*' | sort -u)"
PACKS = f"tar -chf - {PROGRAMS} {PYTHON} {MODULES} {LIBRARIES} 2>/dev/null"


def engine_may_run() -> bool:
    """Tell whether this machine lets us run our own engine, and has the tests' image."""
    return os.geteuid() == 0 and shutil.which("dockerd") is not None and base_image_is_here()


def kinds(*, podman: bool) -> tuple[type[OwnEngine], ...]:
    """Return the kinds of engines of a run."""
    return (OwnEngine, OwnPodman) if podman else (OwnEngine,)


@contextmanager
def engine_with_image(kind: type[OwnEngine] = OwnEngine) -> Iterator[OwnEngine]:
    """Run an engine that keeps its containers when it dies."""
    engine = kind(Path(tempfile.mkdtemp(prefix="forge-e-")), live_restore=True)
    try:
        engine.start()
        subprocess.run(
            ["sh", "-c", FILL, "sh", PACKS, engine.url, BASE_IMAGE, IMAGE],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        yield engine
    finally:
        engine.close()
