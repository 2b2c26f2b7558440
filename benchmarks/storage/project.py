"""A large project: submitted, submitted again after an edit, and fetched by two workers."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from forge_client.project.listing import SETTLED_NS
from forge_client.project.scan import scan
from forge_client.project.submission import upload
from forge_worker.prepare.bundle import BundleCache

from benchmarks.storage.bed import Way, way
from benchmarks.storage.checkpoint import Figures, measured

CACHE_BYTES = 1 << 40


def project(
    root: Path, files: int, size: int, *, over_http: bool, store_url: str | None
) -> list[Figures]:
    """Send and fetch a project of some files of some bytes on average, which do not compress."""
    with way(root, over_http=over_http, store_url=store_url) as made:
        folder = root / "project"
        _fill(folder, files, size)
        first, digest = _sent(made, folder, "submitted")
        again, _ = _sent(made, folder, "again")
        fetched = _fetched(made, digest, "fetched", root / "one")
        with (folder / "part-7" / "7").open("ab") as file:
            file.write(b"edited")
        edited, digest = _sent(made, folder, "after an edit")
        return [
            *(first, again, fetched, edited),
            _fetched(made, digest, "fetched after the edit", root / "one"),
            _fetched(made, digest, "fetched by a second worker", root / "two"),
        ]


def _fill(folder: Path, files: int, size: int) -> None:
    chance = random.Random(1)  # noqa: S311  no secret
    for number in range(files):
        path = folder / f"part-{number % 50}" / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(int(chance.expovariate(1 / size))))


def _sent(made: Way, folder: Path, name: str) -> tuple[Figures, str]:
    with made.client() as backend, measured(name, made.root / "none") as figures:
        found = scan(folder)
        # As if its last change were not of this minute: then it is not read again.
        settled = replace(found, at_ns=found.at_ns + 2 * SETTLED_NS)
        uploaded = upload(backend, settled)
    figures.sent = uploaded.sent
    return figures, uploaded.bundle.digest


def _fetched(made: Way, digest: str, name: str, worker: Path) -> Figures:
    attempt, objects = made.attempt(digest)
    get: Callable[..., None] = objects.get_file
    sizes: list[int] = []

    def counted(key: str, path: Path, **words: Any) -> None:  # noqa: ANN401  passed on
        get(key, path, **words)
        sizes.append(path.stat().st_size)

    # A store in a folder is the same for all attempts.
    objects.get_file = counted  # type: ignore[method-assign]
    with measured(name, made.root / "none") as figures:
        BundleCache(objects, worker, CACHE_BYTES).unpack(digest, attempt.folders.work)
    figures.sent = sum(sizes)
    return figures
