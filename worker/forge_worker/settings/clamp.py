"""What is lent to jobs is never more than the machine has."""

import psutil
import structlog

from forge_worker.settings.settings import WorkerSettings

log = structlog.get_logger(__name__)


def within_the_machine(settings: WorkerSettings) -> WorkerSettings:
    """Return the settings with no more memory than there is, and no more disk than is free.

    CPUs are time and not space: more of them than there are make jobs slower, and are only told of.
    """
    there = {
        "memory_mb": psutil.virtual_memory().total >> 20,
        "disk_mb": max(1, psutil.disk_usage(str(settings.worker_dir)).free >> 20),
    }
    given = settings.model_fields_set
    for name, mb in there.items():
        if name in given and getattr(settings, name) > mb:
            log.warning("the machine has less than is to be lent", setting=name, there=mb)
    if settings.cpus > (cpus := psutil.cpu_count() or 1):
        log.warning("jobs share CPUs: more are lent than there are", lent=settings.cpus, there=cpus)
    lent = {name: min(getattr(settings, name), mb) for name, mb in there.items()}
    return settings.model_copy(update=lent)
