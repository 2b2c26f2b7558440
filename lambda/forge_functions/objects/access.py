"""The objects that a lease's holder may access: only keys that the server itself would use."""

import re

from forge_schema.model.stored import SignedUrl
from forge_schema.protocol.messages import Transfer
from forge_schema.queue.own_leases import OwnLease
from forge_schema.storage import Store, keys
from forge_schema.storage.code import is_code
from forge_schema.storage.signed import Signer

from forge_functions.auth.own_lease import absent

# Of any attempt: an earlier one may have stored a checkpoint's files.
CHECKPOINT = r"jobs/{job_id}/[^/]+/checkpoints/(files/)?[^/]+"
# Of another job only by digest, as listed in those manifests.
SOURCE_FILE = r"jobs/{job_id}/[^/]+/checkpoints/files/([0-9]{{6}}-)?[0-9a-f]{{64}}"


def may_put(lease: OwnLease, key: str) -> bool:
    """Tell whether a key is below the lease's own prefix."""
    return key.startswith(lease.keys.prefix) and keys.is_valid(key)


def may_get(lease: OwnLease, key: str, store: Store) -> bool:
    """Tell whether a key is the job's code or image, or part of a checkpoint that it may read.

    These are all its own checkpoints, and the one of another job that it starts from.
    """
    if is_input(lease.bundle_digest, lease.image_tar, key, store):
        return True
    places = [CHECKPOINT.format(job_id=lease.fence.job_id)]
    if lease.source_keys:
        places += map(re.escape, lease.source_keys)
        places.append(SOURCE_FILE.format(job_id=lease.source_job_id))
    return re.fullmatch("|".join(places), key) is not None and keys.is_valid(key)


def is_input(bundle: str | None, image_tar: str | None, key: str, store: Store) -> bool:
    """Tell whether a key is the bundle with this digest, one of its segments, or the image."""
    if image_tar is not None and key == keys.image(image_tar):
        return True
    return bundle is not None and is_code(bundle, key, store)


def signed(lease: OwnLease, wanted: Transfer, signer: Signer, store: Store) -> SignedUrl:
    """Sign a request for an object.

    Raises:
        Refused: 404 for an object that the holder may not access.
        ObjectTooLarge: the store does not accept it in one request.
    """
    if wanted.operation == "get":
        if not may_get(lease, wanted.key, store):
            raise absent()
        return signer.get(wanted.key)
    if not may_put(lease, wanted.key):
        raise absent()
    assert wanted.size is not None  # noqa: S101 - the body's validator checks it
    assert wanted.sha256 is not None  # noqa: S101 - as above
    return signer.put(
        wanted.key, size=wanted.size, sha256=wanted.sha256, if_absent=wanted.if_absent
    )
