"""Worker tokens, for workers that an admin creates before they first connect."""

from collections.abc import Mapping
from datetime import timedelta

from psycopg.types.json import Jsonb

from forge_schema.access import tokens
from forge_schema.access.tokens import ParsedToken, TokenKind
from forge_schema.database.pool import DatabaseActor, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text
from forge_schema.model.states import WorkerKind
from forge_schema.model.worker import no_such_worker
from forge_schema.queue.registry import Registry

LARGEST_ID = 2**63 - 1


class NameTaken(ForgeError):
    """Another worker has this name."""


class JoinRefused(ForgeError):
    """The token in a line for a machine is not valid any more."""


class NotOffline(ForgeError):
    """The worker is online or holds leases."""

    code = "worker_not_offline"


class WorkerTokens(DatabaseActor):
    """Creates workers and their tokens, and checks tokens. Every change is in the audit trail."""

    def create(
        self,
        name: str,
        *,
        kind: WorkerKind = WorkerKind.PERSISTENT,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | None = None,
        public_key: bytes | None = None,
        token: TokenKind = TokenKind.WORKER,
    ) -> tuple[int, str]:
        """Create a worker that may connect, and return its id and its token.

        Args:
            name: its name, which must be unique.
            kind: whether it exits after one job or stays.
            labels: labels that override those the worker reports.
            lasts: time until the token expires; None means never.
            public_key: an Ed25519 key, 32 bytes. If given, every request must be signed.
            token: the kind of its token; one to join with must first be exchanged.

        Raises:
            NameTaken: another worker has this name.
        """
        place = self._database.row("next_worker_id", again=True)
        assert place is not None  # noqa: S101 - a sequence has a next value
        worker_id: int = place["id"]
        text, digest = tokens.mint(token, str(worker_id))
        row = self._database.row(
            "create_worker",
            again=True,
            id=worker_id,
            name=name,
            kind=kind.value,
            labels=Jsonb(dict(labels or {})),
            hash=digest,
            lasts=lasts,
            public_key=public_key,
            actor=self._actor,
        )
        if row is None:
            raise NameTaken(f"a worker {name!r} already exists", hint="choose another name")
        return worker_id, text

    def enrol(self, name: str, labels: Mapping[str, str]) -> tuple[int, str]:
        """Create an ephemeral worker, or replace the token of one created by an earlier call.

        Args:
            name: its name, which must be unique.
            labels: its labels, by which a repeated call is recognised.

        Raises:
            NameTaken: a worker with other labels has this name.
            NoSuchWorker: it was removed in the meantime; another call creates it again.
        """
        try:
            return self.create(name, kind=WorkerKind.EPHEMERAL, labels=labels)
        except NameTaken:
            row = self._database.row("enrolled_worker", name=name, labels=Jsonb(dict(labels)))
            if row is None:
                raise
        return row["id"], self.rotate(row["id"])

    def invite(
        self,
        name: str,
        *,
        kind: WorkerKind = WorkerKind.PERSISTENT,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta,
    ) -> tuple[int, str]:
        """Create a worker for a machine that joins; return its id and the token to join with.

        If it exists and never connected, earlier tokens become invalid.

        Raises:
            NameTaken: a worker of this name has connected.
        """
        try:
            return self.create(name, kind=kind, labels=labels, lasts=lasts, token=TokenKind.JOIN)
        except NameTaken:
            worker_id = Registry(self._database, actor=self._actor).named(name)
        text, digest = tokens.mint(TokenKind.JOIN, str(worker_id))
        row = self._database.row(
            "invite_worker",
            again=True,
            id=worker_id,
            kind=kind.value,
            labels=Jsonb(dict(labels or {})),
            hash=digest,
            lasts=lasts,
            actor=self._actor,
        )
        if row is None:
            raise NameTaken(
                f"a worker {name!r} already exists and has connected",
                hint="choose another name; or stop it, and remove it with `forge worker delete`",
            )
        return worker_id, text

    def join(self, token: ParsedToken, secret: str) -> tuple[int, str, str]:
        """Exchange a token to join with, once; return the worker's id, its name and its token.

        A repeat with the same secret has the same answer, so a lost one does no harm.

        Raises:
            JoinRefused: the token was exchanged or replaced, or has expired.
        """
        text, digest = tokens.mint(TokenKind.WORKER, token.id, secret)
        worker_id = _worker_id(token)
        row = worker_id and self._database.row(
            "join_worker", again=True, id=worker_id, hash=digest, join_hash=token.digest
        )
        if not row:
            raise JoinRefused(
                "the token of this line was used already, was replaced or has expired",
                hint="ask an admin for a new line: forge worker add NAME",
            )
        return row["id"], row["name"], text

    def rotate(
        self, worker_id: int, *, lasts: timedelta | None = None, public_key: bytes | None = None
    ) -> str:
        """Replace a worker's token and return the new one. The old token is invalid at once.

        A public key stays unless another is given.

        Raises:
            NoSuchWorker: the worker does not exist.
        """
        text, digest = tokens.mint(TokenKind.WORKER, str(worker_id))
        row = self._database.row(
            "rotate_worker",
            again=True,
            id=worker_id,
            hash=digest,
            lasts=lasts,
            public_key=public_key,
            actor=self._actor,
        )
        if row is None:
            raise no_such_worker(worker_id)
        return text

    def delete(self, worker_id: int) -> None:
        """Delete a worker that is offline or never connected, and its token.

        Raises:
            NoSuchWorker: the worker does not exist.
            NotOffline: it is online or holds leases.
        """
        row = self._database.row("delete_worker", id=worker_id, actor=self._actor)
        if row is None:
            raise no_such_worker(worker_id)
        if not row["deleted"]:
            silence = f"was heard from {duration_text(row['silent_s'])} ago"
            raise NotOffline(
                f"worker {row['name']} is {row['status']}, {silence} and may hold jobs",
                hint="drain it, stop it, and delete it once `forge worker list` shows it offline;"
                " one that is gone is shown so after a while of silence",
            )

    def check(self, token: ParsedToken) -> Row | None:
        """Return the worker with this token and its `public_key`, or None."""
        worker_id = _worker_id(token)
        row = worker_id and self._database.row("worker_by_token", again=True, id=worker_id)
        if not row or not tokens.matches(token, row.pop("token_hash")):
            return None
        return row


def _worker_id(token: ParsedToken) -> int | None:
    """Return the id that a token names; None if no worker can have it."""
    known = token.id.isdecimal() and int(token.id) <= LARGEST_ID
    return int(token.id) if known else None
