"""The inputs of a job that waits in the queue, for a worker that prepares for it."""

from forge_schema.model.stored import SignedUrl
from forge_schema.protocol.answers import SignedUrls
from forge_schema.protocol.messages import InputsWanted, Transfer
from forge_schema.storage import KeyInvalid

from forge_worker.queue.http.session import ServerRefused
from forge_worker.queue.http.store import HttpObjects


class WaitingObjects(HttpObjects):
    """The bundle and the saved image of a waiting job."""

    def _urls(self, wanted: list[Transfer]) -> list[SignedUrl]:
        path = f"/next/{self._attempt.fence.job_id}/objects"
        body = InputsWanted(keys=[one.key for one in wanted])
        return self._store.session.post(path, body, SignedUrls).urls

    def _url(self, wanted: Transfer) -> SignedUrl:
        try:
            return self._urls([wanted])[0]
        except ServerRefused as error:
            # Another worker has taken the job.
            raise KeyInvalid(f"{wanted.key}: {error.message}", hint=error.hint) from error
