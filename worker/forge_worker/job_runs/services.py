"""The services that all attempts of a worker share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from forge_schema.model.worker import Speed

from forge_worker import worker_folder
from forge_worker.attempt.attempt import Attempt
from forge_worker.gang.policy import GangPolicy
from forge_worker.job_io.usage import Sampler
from forge_worker.job_runs.job_environment import Host
from forge_worker.machine.gpu_health import FaultWatch
from forge_worker.machine.health import Health
from forge_worker.machine.watched import WatchedMachine
from forge_worker.prepare.cache import CacheProvision, LruFolders
from forge_worker.prepare.handlers import KindProvision
from forge_worker.prepare.images import Images
from forge_worker.prepare.job_module import JobModuleProvision
from forge_worker.prepare.provisions import Provision
from forge_worker.prepare.python_env import EnvironmentProvision
from forge_worker.prepare.secrets import SecretProvision, SecretStore
from forge_worker.prepare.warm import WarmParts
from forge_worker.queue.gateway import Gateway
from forge_worker.queue.objects import Objects
from forge_worker.runners.choice import Runners
from forge_worker.settings.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class JobServices:
    """Shared by all attempts of a worker; `provisions` are applied in order.

    `speed` is the machine's; None if it was not measured. `ended` frees what an attempt no longer
    needs once its job has ended.
    """

    host: Host
    objects: Callable[[Attempt], Objects]
    gateway: Gateway
    bundles: Path
    bundles_bytes: int
    log_flush_s: float
    term_notice_s: float
    upload_reserve_s: float
    store_patience_s: float
    sampler: Sampler
    fault_watch: FaultWatch
    health: Health
    warm: WarmParts
    gangs: GangPolicy
    speed: Speed | None
    ended: Callable[[Attempt], None]
    provisions: tuple[Provision, ...] = ()


def job_services(
    settings: WorkerSettings,
    gateway: Gateway,
    objects: Callable[[Attempt], Objects],
    runners: Runners,
    machine: WatchedMachine,
    *,
    sampler: Sampler,
    gangs: GangPolicy,
    ended: Callable[[Attempt], None],
) -> JobServices:
    """Return a worker's services; its registration later fills in the name and the queue."""
    most = settings.cache_mb << 20
    warm = WarmParts(settings.worker_dir / "warm")
    gateway.prefer(warm.newest())
    images = Images(runners.policy, objects, settings.worker_dir / "images", most)
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
        warm=warm,
        gangs=gangs,
        speed=machine.speed,
        ended=ended,
        provisions=provisions_in_order(settings, images),
    )


def provisions_in_order(settings: WorkerSettings, images: Provision) -> tuple[Provision, ...]:
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
        JobModuleProvision(folder / "python"),
        KindProvision(),
    )
