"""The verbs of admins, through a server."""

from __future__ import annotations

from forge_schema.service.admin import Admin

from forge_client.http.remote import ServerVerbs
from forge_client.http.transport import Transport


class HttpAdmin(Admin):
    """Asks a server; what makes something anew is never repeated unasked."""

    def __init__(self, transport: Transport) -> None:
        self.remote = ServerVerbs(transport, owner=None)

    def pause(self, queue: str, *, paused: bool = True) -> None:
        self.change_queue(queue, {"paused": paused})

    def limit_queue(self, queue: str, *, max_jobs: int | None, max_gpus: int | None) -> None:
        self.change_queue(queue, {"max_jobs": max_jobs, "max_gpus": max_gpus})
