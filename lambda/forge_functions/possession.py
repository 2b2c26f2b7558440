"""Whether an owner has uploaded the code that its jobs name, wherever the upload went."""

from collections.abc import Sequence
from itertools import islice

from forge_schema.model.spec import JobSpec
from forge_schema.queue.inputs import NotUploaded, Uploads
from forge_schema.storage import keys

from forge_functions.auth.caller import Caller
from forge_functions.services import Services

# Each is a request to the store, and a batch names one or two as a rule.
MOST_LOOKS = 100


def has_uploaded(shared: Services, owner: str, key: str, sha256: str) -> bool:
    """Tell whether an owner has uploaded an object, and record what the store remembers of it.

    Uploads to S3 do not pass through the server: the object itself says who sent it.
    """
    uploads = Uploads(shared.database)
    uploader = shared.store.uploader(key)
    if uploader is not None:
        uploads.add(uploader, sha256)
    return uploader == owner or not uploads.missing(owner, [sha256])


def submit(shared: Services, who: Caller, jobs: Sequence[JobSpec]) -> list[int]:
    """Submit jobs, all or none, as `Queue.submit` does."""
    queue = shared.queue(who.actor)
    try:
        return queue.submit(jobs, any_owner=who.admin)
    except NotUploaded:
        _look(shared, jobs)
        return queue.submit(jobs, any_owner=who.admin)


def _look(shared: Services, jobs: Sequence[JobSpec]) -> None:
    bundles = {(job.owner, job.bundle_digest, keys.bundle) for job in jobs}
    images = {(job.owner, job.image_tar, keys.image) for job in jobs}
    for owner, sha256, key in islice(bundles | images, MOST_LOOKS):
        if sha256:
            has_uploaded(shared, owner, key(sha256), sha256)
