"""Everything that a path can name, created anew for each request, and every kind of caller."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

from forge_functions.auth import short_token
from forge_functions.middleware.failures import Failures
from forge_schema.access.api_keys import Sessions
from forge_schema.model.admin import TeamChanges
from forge_schema.model.lease import Fence
from forge_schema.model.states import Phase, Reason, Role
from forge_schema.queue.limits import Limits
from forge_schema.storage.keys import AttemptKeys
from support.http.api import bearer
from support.http.http_worker import raw_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.http.api import Api
    from support.http.http_worker import RawWorker

DIGEST = hashlib.sha256(b"object").hexdigest()
HOUR = timedelta(hours=1)
Headers = dict[str, str]


class World:
    """A queue with ann's jobs, which this world's worker may hold."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._serial = count()
        self.holder = raw_worker(api, "holder")
        limits = Limits(api.rig.database, actor="user:root")
        limits.set_team("vision", TeamChanges(join=["ann", "cem"]))
        limits.set_team("nlp", TeamChanges(join=["bob"]))

    def call(self, kind: str, method: str, path: str, body: object) -> int:
        """Send a request as one kind of caller, and return the answer's status."""
        # A caller with a wrong secret tries it on every path here, and must not be locked out.
        self.api.services.failures = Failures()
        return self.api.caller(self.callers[kind]).call(method, path, body).status_code

    @cached_property
    def other(self) -> RawWorker:
        """A worker that holds nothing."""
        return raw_worker(self.api, "other")

    @cached_property
    def callers(self) -> dict[str, Headers]:
        """Headers of every kind of caller."""
        submitter = self.api.key("ann", Role.SUBMITTER)
        admins = [self.api.key("ann", Role.ADMIN) for _ in range(3)]
        rotated, revoked, expired = admins
        self.api.keys.rotate(rotated.key_id)
        self.api.keys.revoke(revoked.key_id)
        self._expire("api_key", "expires_at", expired.key_id)
        return {
            "none": {},
            "viewer": self.api.key("ann", Role.VIEWER).headers,
            "submitter": submitter.headers,
            "token": bearer(submitter.post("/api/v1/token")["token"]),
            "signed on": self._signed_on("ann")[1],
            "other owner": self.api.key("bob", Role.SUBMITTER).headers,
            **self._seeing(),
            "admin": self.admin(),
            "worker": self.holder.headers,
            "other worker": self.other.headers,
            "rotated": rotated.headers | self._once_a_worker(self.api.workers.rotate),
            "revoked": revoked.headers | self._once_a_worker(self.api.workers.delete),
            "signed off": self._signed_off(),
            "unsigned": self.api.signing_key("ann", Role.ADMIN).headers
            | self.api.signing_worker(self._name()).headers,
            "expired": expired.headers
            | self._once_a_worker(lambda w: self._expire("worker", "token_expires_at", w)),
        }

    def _seeing(self) -> dict[str, Headers]:
        """Return the headers of those who see others' jobs: those of a team, or everyone's."""
        viewer, submitter = Role.VIEWER, Role.SUBMITTER
        callers = {
            "team's viewer": self.api.key("eva", viewer, team="vision"),
            "other team's viewer": self.api.key("eva", viewer, team="nlp"),
            "team's submitter": self.api.key("cem", submitter, team="vision"),
            "viewer of all": self.api.key("eva", viewer, everyone=True),
        }
        Sessions(self.api.rig.database).note_person(
            "oidc:dan", "dan", submitter, None, team="vision"
        )
        keys = {kind: caller.headers for kind, caller in callers.items()}
        return {
            **keys,
            "team's signed on": self._signed_on("dan")[1],
            "signed on for all": self._signed_on("fay", viewer, everyone=True)[1],
        }

    def admin(self) -> Headers:
        """Return the headers of a new admin's key."""
        return self.api.key("root", Role.ADMIN).headers

    def _signed_on(
        self, who: str, role: Role = Role.SUBMITTER, *, everyone: bool = False
    ) -> tuple[str, Headers]:
        """Return the session of a `forge login` by single sign-on, and its headers."""
        begun = Sessions(self.api.rig.database).begin(
            f"oidc:{who}",
            who,
            role,
            name="login",
            address="127.0.0.1",
            lasts=HOUR,
            everyone=everyone,
        )
        assert begun is not None
        token = short_token.mint(self.api.services, begun, begun["expires_at"])
        return begun["id"], bearer(token)

    def _signed_off(self) -> Headers:
        session, headers = self._signed_on("ann")
        Sessions(self.api.rig.database).end(session, actor="user:root")
        return headers

    def _once_a_worker(self, over: Callable[[int], object]) -> Headers:
        worker = raw_worker(self.api, self._name(), registered=False)
        over(worker.id)
        return worker.headers

    def _expire(self, table: str, column: str, row_id: object) -> None:
        self.api.rig.rows(f"UPDATE {table} SET {column} = forge_now() WHERE id = %s", row_id)

    def _name(self) -> str:
        return f"name-{next(self._serial)}"

    def job(self) -> int:
        """Submit a job for ann, whose code has a diff."""
        git = {"revision": "0" * 40, "dirty": True, "diff": "0" * 64}
        return self.api.rig.submit(owner="ann", git=git)

    def sweep(self) -> str:
        """Submit a job of a sweep for ann."""
        self.api.rig.submit(owner="ann", kind="benchmark", sweep="batches", parallel=9)
        return "batches"

    def dead_job(self) -> int:
        """Return a job of ann's that can be retried."""
        self.api.rig.submit(owner="ann", max_failures=0, priority=1000)
        grant = self.api.rig.worker("ending").claim_one()
        self.api.rig.finish(grant, Reason.EXIT_CODE)
        return grant.fence.job_id

    def running_job(self) -> int:
        """Return a job of ann's whose program runs."""
        grant, _ = self.lease()
        fence = Fence(grant["job_id"], grant["token"], UUID(grant["nonce"]))
        self.api.rig.queue.report(fence, Phase.RUNNING)
        return fence.job_id

    def absent_worker(self) -> int:
        """Return a worker that never connected."""
        return self.api.workers.create(self._name())[0]

    def spare_key(self) -> str:
        """Return an API key that nobody uses."""
        return self.api.keys.create("eve", Role.VIEWER)[0]

    def team(self) -> str:
        """Return a team without owners."""
        Limits(self.api.rig.database, actor="user:root").set_team("audio", TeamChanges())
        return "audio"

    def queue(self) -> str:
        """Return a queue without jobs."""
        Limits(self.api.rig.database, actor="user:root").set_queue("unused", {})
        return "unused"

    def template(self) -> str:
        """Return a template of ann's, which an earlier request may have removed."""
        self.api.rig.rows(
            "INSERT INTO template (owner, name, spec, updated_at)"
            " VALUES ('ann', 'nightly', '{}', forge_now()) ON CONFLICT DO NOTHING"
        )
        return "nightly"

    def input(self) -> str:
        """Return a registered input of ann's, which an earlier request may have removed."""
        self.api.rig.rows(
            "INSERT INTO registered_input (owner, name, source, updated_at)"
            " VALUES ('ann', 'set', 's3://sets', forge_now()) ON CONFLICT DO NOTHING"
        )
        return "set"

    def schedule(self) -> str:
        """Return a schedule of ann's, which an earlier request may have removed."""
        self.api.rig.rows(
            "INSERT INTO schedule (owner, name, cron, spec, next_at)"
            " VALUES ('ann', 'weekly', '0 3 * * 0', '{\"name\": \"x\", \"command\": [\"ls\"]}',"
            " forge_now()) ON CONFLICT DO NOTHING"
        )
        return "weekly"

    def notification(self) -> str:
        """Return a notification of ann's, which an earlier request may have removed."""
        self.api.rig.rows(
            "INSERT INTO notification"
            " (owner, name, kind, target, secret, events, actor, created_at)"
            " VALUES ('ann', 'ops', 'webhook', 'https://hooks.example/', 'whsec_AAAA', '{failed}',"
            " 'user:ann', forge_now()) ON CONFLICT DO NOTHING"
        )
        return "ops"

    def delivery(self, state: str = "waiting") -> str:
        """Return a delivery of ann's."""
        self.notification()
        row = self.api.rig.row(
            "INSERT INTO delivery (notification_id, event, subject, at, state, next_at)"
            " SELECT id, 'failed', coalesce((SELECT max(subject) FROM delivery), 0) + 1,"
            " forge_now(), %s, forge_now() FROM notification WHERE name = 'ops'"
            " RETURNING id::text AS id",
            state,
        )
        return str(row["id"])

    def lease(self) -> tuple[dict[str, Any], AttemptKeys]:
        """Have the holder lease a job of ann's; return its grant and the keys that it may write."""
        self.api.rig.submit(owner="ann", priority=1000)
        (grant,) = self.holder.claim()
        fence = Fence(grant["job_id"], grant["token"], UUID(grant["nonce"]))
        return grant, AttemptKeys(fence.job_id, grant["attempt"], fence.mark)
