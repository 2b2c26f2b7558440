"""Locks of killed programs go before a job begins, if no other job of the owner uses the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.prepare.cache import CacheProvision, LruFolders, owner_key
from forge_worker.runners.process.door import EXIT
from forge_worker.runners.process.runner import ProcessRunner
from support.workers.attempts import attempt_of, some_grant
from support.workers.runners import make_spec

if TYPE_CHECKING:
    from pathlib import Path

# What programs leave when they are killed, by who does.
LOCKS = {
    "torch_extensions/py311_cpu/fused_adam/lock": "",  # PyTorch, and DeepSpeed through it
    "matplotlib/fontlist-v390.json.matplotlib-lock": "",
    "datasets/downloads/data.lock": "4711\nmachine\n",  # filelock's SoftFileLock
    "torch/hub/repository/.git/index.lock": "x" * 1000,
    "huggingface/hub/.locks/models--a/ab12.lock": "",
    "huggingface/hub/.locks/shared/ab12.lock.soft": "4711\nmachine\n",  # where flock is missing
    "miopen/3.5.0/gfx942.ukdb.fslock": "",  # ROCm on network file systems
    "numba/cache.lockfile": "",
}
DATA = {
    "torch/hub/repository/uv.lock": "",
    "torch/hub/repository/environment.lock": "x" * 1000,
    "torch/hub/repository/locksmith.py": "",
    "torch/hub/repository/model.soft": "",
    "huggingface/hub/models--a/block": "",
    "uv/sdists-v9/.lock": "",
}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    made = tmp_path / "caches" / owner_key("ann")
    for path, text in {**LOCKS, **DATA}.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(text)
    (made / "mkdir.lock").mkdir()
    (made / "ccache.lock").symlink_to("4711@machine")
    return made


def provided(root: Path) -> None:
    provision = CacheProvision(LruFolders(root / "caches", root / "jobs", 1 << 30))
    attempt = attempt_of(some_grant(), root / "jobs" / "next")
    provision.provide(make_spec(root, ("true",)), attempt, ProcessRunner())


def left(cache: Path) -> set[str]:
    links = {path for path in cache.rglob("*") if path.is_symlink()}
    return {str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file() or p in links}


def test_locks_go_and_data_stays(tmp_path: Path, cache: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lock").touch()
    (cache / "elsewhere").symlink_to(outside)
    provided(tmp_path)
    assert left(cache) == {*DATA, "elsewhere"}
    assert not (cache / "mkdir.lock").exists()
    assert (outside / "lock").exists()


@pytest.mark.parametrize(("ended", "stay"), [('{"code": 137}', False), ("{}", True), (None, True)])
def test_locks_stay_while_processes_of_the_owner_may_hold_them(
    tmp_path: Path, cache: Path, ended: str | None, *, stay: bool
) -> None:
    other = tmp_path / "jobs" / "other"
    other.mkdir(parents=True)
    (other / "kept").write_text(f"caches/{cache.name}\n")
    if ended is not None:
        (other / EXIT).write_text(ended)
    provided(tmp_path)
    assert (LOCKS.keys() <= left(cache)) is stay


def test_an_unreadable_folder_fails_no_job(tmp_path: Path, cache: Path) -> None:
    (cache / "torch_extensions").chmod(0)
    provided(tmp_path)
    (cache / "torch_extensions").chmod(0o700)
    assert DATA.keys() <= left(cache)
