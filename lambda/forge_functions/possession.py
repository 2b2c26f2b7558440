"""Check that owners have uploaded the code of their jobs, through the server or to S3."""

from collections.abc import Sequence
from itertools import islice

from forge_schema.model.spec import JobSpec
from forge_schema.queue.inputs import NotUploaded, Uploads
from forge_schema.storage import keys

from forge_functions.auth.caller import Caller
from forge_functions.services import Services

# Each is a request to the store; a batch usually names one or two.
MOST_LOOKS = 100


def has_uploaded(shared: Services, owner: str, key: str, sha256: str) -> bool:
    """Tell whether an owner has uploaded an object, and record it.

    Uploads to S3 do not pass through the server; the object's metadata names the uploader.
    """
    uploads = Uploads(shared.database)
    uploader = shared.store.uploader(key)
    if uploader is not None:
        uploads.add(uploader, sha256)
    return uploader == owner or not uploads.missing(owner, [sha256])


def submit(shared: Services, who: Caller, jobs: Sequence[JobSpec]) -> list[int]:
    """Submit all jobs or none, as `Queue.submit` does."""
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
