"""The order of preparation: image, secrets, caches, environment, modules, kind."""

from forge_worker.prepare.cache import CacheProvision, LruFolders
from forge_worker.prepare.handlers import KindProvision
from forge_worker.prepare.job_module import JobModuleProvision
from forge_worker.prepare.provisions import Provision
from forge_worker.prepare.python_env import EnvironmentProvision
from forge_worker.prepare.secrets import SecretProvision, SecretStore
from forge_worker.settings.settings import WorkerSettings


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
