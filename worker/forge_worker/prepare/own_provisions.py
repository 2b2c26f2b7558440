"""What each job gets of its worker beside its image: secrets, caches, an environment, a module."""

from forge_worker.prepare.job_module import JobModuleProvision
from forge_worker.prepare.lru_folders import KeptFolders
from forge_worker.prepare.model_cache import CacheProvision
from forge_worker.prepare.provisions import Provision
from forge_worker.prepare.python_env.environment import EnvironmentProvision
from forge_worker.prepare.secret_provision import SecretProvision
from forge_worker.prepare.secret_store import Vault
from forge_worker.settings.settings import WorkerSettings


def own_provisions(settings: WorkerSettings) -> tuple[Provision, ...]:
    """Return the provisions that the settings allow, in the order in which they build on another.

    Secrets come first, since an installation may need them to reach its packages.
    """
    folder, most = settings.worker_dir, settings.cache_mb << 20
    jobs = folder / "jobs"
    environments = KeptFolders(folder / "envs", jobs, most)
    caches = KeptFolders(folder / "caches", jobs, most)
    return (
        SecretProvision(Vault(settings.secrets_dir, settings.name())),
        *((CacheProvision(caches),) if settings.keep_caches else ()),
        EnvironmentProvision(
            environments, allowed=settings.allow_install, host_packages=settings.host_packages
        ),
        JobModuleProvision(folder / "python"),
    )
