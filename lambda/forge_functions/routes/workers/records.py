"""Reports of a lease's holder about its job: phase, end, stored objects."""

from collections.abc import Callable
from http import HTTPStatus
from typing import cast

from fastapi import Request
from forge_schema.model.attempt_records import (
    ArtifactRecord,
    AttemptRecord,
    CheckpointRecord,
    LogChunkRecord,
    StoredArtifacts,
)
from forge_schema.model.states import Standing
from forge_schema.model.stored import SignedUrl
from forge_schema.protocol import messages
from forge_schema.protocol.answers import (
    ChosenCheckpoint,
    Gathered,
    InputArtifacts,
    NewestCheckpoints,
    Nothing,
    ReportAnswer,
    Restorable,
    SignedUrls,
    ThinnedCount,
)
from forge_schema.queue.attempt_records import OwnLeases, Records
from forge_schema.queue.inputs import InputFiles
from forge_schema.queue.thinning import Thinning
from forge_schema.storage.keys import UNNAMEABLE, AttemptKeys, is_digest
from forge_schema.storage.store import KeyInvalid

from forge_functions.auth.worker import absent, lost, own, own_lease
from forge_functions.bodies import IdInPath as JobId
from forge_functions.errors import Refused, problems
from forge_functions.objects import may_put, signed
from forge_functions.routes.guarded_route import Router
from forge_functions.routes.workers.protocol import AsWorker
from forge_functions.services import Shared

router = Router(
    prefix="/api/v1/workers/job/{job_id}", tags=["workers"], responses=problems(401, 404)
)


@router.post("/status")
def status(job_id: JobId, body: messages.Status, caller: AsWorker, shared: Shared) -> ReportAnswer:
    """Report a job's phase or its attempt's end. A repeat returns the same answer."""
    fence = body.fence(job_id)
    if body.end is not None:
        own(shared, caller, [fence])
        ended = shared.finishing.finish([body.end.of(fence)])[0]
        shared.exchanged(1, 0)
        if not ended.over:
            shared.matching.came_back()
        return ReportAnswer(ended=ended)
    own_lease(shared, caller, fence)
    assert body.phase is not None  # noqa: S101 - the body has one of the two
    queue = shared.queue(caller.actor)
    standing = queue.report(
        fence,
        body.phase,
        progress=body.progress,
        devices=body.devices,
        replaced_by=body.replaced_by,
    )
    if standing is Standing.LOST:
        raise lost()
    return ReportAnswer(standing=standing)


@router.post("/gather")
def gather(job_id: JobId, body: messages.Gather, caller: AsWorker, shared: Shared) -> Gathered:
    """Report how far a member of a run has come, and see the others. To be repeated meanwhile."""
    fence = body.fence(job_id)
    own_lease(shared, caller, fence)
    gathering = shared.queue(caller.actor).gather(fence, body.step, body.member)
    if gathering.standing is Standing.LOST:
        raise lost()
    return Gathered(standing=gathering.standing, members=gathering.members)


def _storing(message: type[messages.Held]) -> Callable[..., Nothing]:
    """Return the endpoint that stores the record in a message."""

    def store(job_id: JobId, body: messages.Held, caller: AsWorker, shared: Shared) -> Nothing:
        lease = own_lease(shared, caller, body.fence(job_id))
        record = cast(AttemptRecord, body)
        _own_key(_has_own_keys(lease.keys, record))
        if not Records(shared.database).record(lease.fence, record):
            raise lost()
        return Nothing()

    store.__annotations__["body"] = message
    store.__name__, store.__doc__ = message.__name__, message.__doc__
    return store


for _path, _message in messages.RECORDS.values():
    router.post(f"/{_path}")(_storing(_message))


@router.post("/checkpoints/thin")
def thin_checkpoints(
    job_id: JobId, body: messages.Thin, caller: AsWorker, shared: Shared
) -> ThinnedCount:
    """Thin out a job's checkpoints. The server chooses them and deletes their objects."""
    lease = own_lease(shared, caller, body.fence(job_id))
    thinning = Thinning(shared.database, shared.store)
    gone = thinning.thin(lease.fence, body.keep, everywhere=body.everywhere)
    return ThinnedCount(objects=gone)


@router.post("/checkpoints/newest")
def newest_checkpoints(
    job_id: JobId, body: messages.Held, caller: AsWorker, shared: Shared
) -> NewestCheckpoints:
    """Return the newest checkpoint of a run's rank 0, and the newest one of the lease's holder."""
    lease = own_lease(shared, caller, body.fence(job_id))
    row = Records(shared.database).newest_checkpoints(lease.fence)
    if row is None:
        raise lost()
    return NewestCheckpoints.model_validate(row)


@router.get("/checkpoint")
def latest_checkpoint(job_id: JobId, caller: AsWorker, shared: Shared) -> Restorable:
    """Return the checkpoint to restore a leased job from, and alternatives if it is damaged.

    It is the job's newest complete checkpoint, or else the one that it was submitted with.
    """
    if not OwnLeases(shared.database, caller.id).job(job_id):
        raise lost()
    rows = Records(shared.database).restorable(job_id)
    first, others = next(iter(rows), None), rows[1:]
    return Restorable.model_validate({"checkpoint": first, "others": others})


@router.post("/inputs/artifacts")
def input_artifacts(
    job_id: JobId, body: messages.InputArtifactsWanted, caller: AsWorker, shared: Shared
) -> InputArtifacts:
    """List artifacts of another job that are an input of this one."""
    lease = own_lease(shared, caller, body.fence(job_id))
    files = InputFiles(shared.database, shared.store)
    return InputArtifacts(items=files.artifacts(lease.fence, body.source_id, body.path, body.after))


@router.post("/inputs/checkpoint")
def input_checkpoint(
    job_id: JobId, body: messages.InputCheckpointWanted, caller: AsWorker, shared: Shared
) -> ChosenCheckpoint:
    """Return a checkpoint of another job that is an input of this one."""
    lease = own_lease(shared, caller, body.fence(job_id))
    files = InputFiles(shared.database, shared.store)
    checkpoint = files.checkpoint(lease.fence, body.source_id, body.attempt, body.number)
    return ChosenCheckpoint(checkpoint=checkpoint)


@router.post("/objects", responses=problems(413))
def objects(
    job_id: JobId, body: messages.ObjectWanted, caller: AsWorker, shared: Shared, request: Request
) -> SignedUrl:
    """Sign a URL for one object: to store below the lease's prefix, or to read the job's own."""
    lease = own_lease(shared, caller, body.fence(job_id))
    return signed(lease, body, shared.signer(str(request.base_url)), shared.store)


@router.post("/objects/batch", responses=problems(413))
def objects_at_once(
    job_id: JobId, body: messages.ObjectsWanted, caller: AsWorker, shared: Shared, request: Request
) -> SignedUrls:
    """Sign URLs for up to 100 objects, each as if it were requested alone."""
    lease = own_lease(shared, caller, body.fence(job_id))
    signer = shared.signer(str(request.base_url))
    return SignedUrls(urls=[signed(lease, wanted, signer, shared.store) for wanted in body.objects])


@router.post("/objects/small")
def store_objects(
    job_id: JobId, body: messages.SmallObjects, caller: AsWorker, shared: Shared
) -> Nothing:
    """Store up to 100 small objects below the lease's prefix, if the store is a folder."""
    lease = own_lease(shared, caller, body.fence(job_id))
    _own_key(all(may_put(lease, stored.key) for stored in body.objects))
    if not all(stored.is_whole() for stored in body.objects):
        raise Refused(
            HTTPStatus.CONFLICT,
            "checksum_wrong",
            "an object's SHA-256 is not the one given",
            hint="send the objects again",
        )
    if not shared.store.put_together({stored.key: stored.content for stored in body.objects}):
        raise Refused(HTTPStatus.NOT_FOUND, "not_found", "this server's store has its own URLs")
    return Nothing()


def _has_own_keys(keys: AttemptKeys, record: AttemptRecord) -> bool:
    match record:
        case LogChunkRecord():
            return record.key == keys.log_chunk(record.number)
        case CheckpointRecord():
            return record.key == keys.checkpoint_manifest(record.number)
        case StoredArtifacts():
            return all(_is_own(keys, artifact) for artifact in record.artifacts)
    return True


def _is_own(keys: AttemptKeys, artifact: ArtifactRecord) -> bool:
    return any(_fits(named, artifact) for named in (keys.artifact, keys.chunked_artifact))


def _fits(named: Callable[[str], str], artifact: ArtifactRecord) -> bool:
    try:
        return artifact.key == named(artifact.path)
    except KeyInvalid:
        # The worker knows the name's bytes, of which the path is only a readable form.
        folder, _, name = artifact.key.rpartition("/")
        return folder == named(UNNAMEABLE) and is_digest(name)


def _own_key(own_key: bool) -> None:  # noqa: FBT001 - the call names the question
    if not own_key:
        raise absent()
