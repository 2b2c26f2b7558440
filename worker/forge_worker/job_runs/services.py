"""The services that all attempts of a worker share.

Parts of jobs that this machine has (images, environments, bundles) are told to the queue, which
prefers it for jobs that need them. The queue's hash of a part is the name of a link to the entry of
a cache, which dangles once the entry is evicted.
"""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forge_schema.model.worker import WARM, Speed
from forge_schema.storage import Objects

from forge_worker import worker_folder
from forge_worker.attempt import LiveAttempt
from forge_worker.gang.address import GangPolicy
from forge_worker.job_io.usage import Sampler
from forge_worker.job_runs.job_environment import Host
from forge_worker.machine.gate import Gate
from forge_worker.machine.gpu_health import FaultWatch
from forge_worker.machine.watched import EngineHealth, WatchedMachine
from forge_worker.prepare.cache import CacheProvision, LruFolders, visible
from forge_worker.prepare.images import Images
from forge_worker.prepare.inputs import InputProvision
from forge_worker.prepare.inputs.cache import InputCache
from forge_worker.prepare.provisions import (
    JobModuleProvision,
    KindProvision,
    ProjectProvision,
    Provision,
)
from forge_worker.prepare.python_env import EnvironmentProvision
from forge_worker.prepare.secrets import SecretProvision, SecretStore
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.choice import Runners
from forge_worker.settings.settings import WorkerSettings


class WarmParts:
    """Links below `root`, shared between threads."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def note(self, parts: Mapping[int, Path | None]) -> None:
        """Note the parts that a job uses, each with its place in a cache.

        The place of an image is None: whether the engine still has it is not checked.
        """
        # It is a hint: a job needs no note to start.
        with suppress(OSError):
            self._root.mkdir(mode=0o700, exist_ok=True)
            for part, place in parts.items():
                fresh = self._root / f".{secrets.token_hex(8)}"
                fresh.symlink_to(place or self._root)
                fresh.replace(self._root / str(part))

    def newest(self) -> list[int]:
        """Return the parts that are still there, the last used first; forget the others."""
        aged: list[tuple[int, Path]] = []
        for link in visible(self._root):
            with suppress(OSError, ValueError):
                int(link.name)
                aged.append((link.lstat().st_mtime_ns, link))
        links = [link for _, link in sorted(aged, reverse=True)]
        kept = [link for link in links if link.exists()][:WARM]
        for link in links:
            if link not in kept:
                with suppress(OSError):
                    link.unlink()
        return [int(link.name) for link in kept]


@dataclass(frozen=True, slots=True)
class JobServices:
    """Shared by all attempts of a worker; `provisions` are applied in order.

    `speed` is the machine's; None if it was not measured. `ended` frees what an attempt no longer
    needs once its job has ended.
    """

    host: Host
    objects: Callable[[LiveAttempt], Objects]
    gateway: Gateway
    bundles: Path
    bundles_bytes: int
    log_flush_s: float
    term_notice_s: float
    upload_reserve_s: float
    store_patience_s: float
    sampler: Sampler
    fault_watch: FaultWatch
    health: EngineHealth
    gate: Gate
    warm: WarmParts
    gangs: GangPolicy
    speed: Speed | None
    ended: Callable[[LiveAttempt], None]
    provisions: tuple[Provision, ...] = ()


def job_services(
    settings: WorkerSettings,
    gateway: Gateway,
    objects: Callable[[LiveAttempt], Objects],
    runners: Runners,
    machine: WatchedMachine,
    *,
    sampler: Sampler,
    gangs: GangPolicy,
    folders: Mapping[str, Path],
    ended: Callable[[LiveAttempt], None],
) -> JobServices:
    """Return a worker's services; its registration later fills in the name and the queue."""
    most = settings.cache_mb << 20
    warm = WarmParts(settings.worker_dir / "warm")
    gateway.prefer(warm.newest())
    images = Images(runners.policy, objects, settings.worker_dir / "images", most)
    known = SecretStore(settings.secrets_dir, settings.name())
    inputs = InputProvision(input_cache(settings), folders, gateway, objects, known)
    return JobServices(
        host=Host(
            settings.known_name(),
            str(worker_folder.own_id(settings.worker_dir)),
            "",
            machine.devices.accelerator,
            settings.default_image,
        ),
        objects=objects,
        gateway=gateway,
        bundles=settings.worker_dir / "bundles",
        bundles_bytes=most,
        log_flush_s=settings.log_flush_s,
        term_notice_s=settings.term_notice_s,
        upload_reserve_s=settings.upload_reserve_s,
        store_patience_s=settings.store_patience_s,
        sampler=sampler,
        fault_watch=machine.fault_watch,
        health=machine.health,
        gate=machine.gate,
        warm=warm,
        gangs=gangs,
        speed=machine.speed,
        ended=ended,
        provisions=provisions_in_order(settings, images, inputs),
    )


def input_cache(settings: WorkerSettings) -> InputCache:
    """Return the cache of inputs below the worker's folder."""
    folder = settings.worker_dir
    kept = LruFolders(folder / "inputs", folder / "jobs", settings.inputs_mb << 20)
    return InputCache(kept, settings.disk_floor_mb << 20)


def provisions_in_order(
    settings: WorkerSettings, images: Provision, inputs: Provision
) -> tuple[Provision, ...]:
    """Return the provisions that the settings allow, each after those it depends on.

    An installation runs in the job's image, and may need secrets to download packages.
    """
    folder, most = settings.worker_dir, settings.cache_mb << 20
    jobs = folder / "jobs"
    environments = LruFolders(folder / "envs", jobs, most)
    caches = LruFolders(folder / "caches", jobs, most)
    return (
        images,
        SecretProvision(SecretStore(settings.secrets_dir, settings.name())),
        *((CacheProvision(caches),) if settings.keep_caches else ()),
        EnvironmentProvision(
            environments, allowed=settings.allow_install, host_packages=settings.host_packages
        ),
        # Not for a job that has no lease: it is fetched with the rights of one.
        inputs,
        ProjectProvision(),
        JobModuleProvision(folder / "python"),
        KindProvision(),
    )
