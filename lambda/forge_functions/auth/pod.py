"""Authenticate pods by the bound service-account tokens that their cluster signs."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from forge_functions.auth.issued_tokens import IssuedTokens
from forge_functions.errors import Refused
from forge_functions.settings import ServerSettings

# The pod's name becomes the worker's, which has at most 200 characters.
LONGEST_NAME = 200
SUBJECT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as its cluster names it. `uid` is never reused."""

    namespace: str
    name: str
    uid: str

    @property
    def actor(self) -> str:
        """The actor's name for the audit trail."""
        return f"pod:{self.namespace}/{self.name}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that tell its worker from another one with the same name."""
        return {"kubernetes.io/namespace": self.namespace, "kubernetes.io/pod-uid": self.uid}


class Pods:
    """Authenticates pods of the service accounts in the settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self._accounts = frozenset(settings.enrol_accounts)
        self._tokens = IssuedTokens(settings.enrol_issuer, settings.enrol_audience)

    def pod(self, token: str) -> Pod:
        """Return the pod that a token was issued for.

        Raises:
            Refused: 401 for an invalid token, 403 for one of another service account or without
                a pod, 503 if the cluster does not answer.
        """
        if not self._accounts:
            raise _forbidden("pods cannot enrol at this server")
        claims = self._tokens.claims(token)
        account = str(claims["sub"]).removeprefix(SUBJECT)
        if not str(claims["sub"]).startswith(SUBJECT) or account not in self._accounts:
            raise _forbidden(f"pods of {account} may not enrol here")
        pod = _pod(claims, account.partition(":")[0])
        if pod is None:
            raise _forbidden("the token is not bound to a pod")
        return pod


def _pod(claims: dict[str, Any], namespace: str) -> Pod | None:
    match claims.get("kubernetes.io"):
        case {"pod": {"name": str(name), "uid": str(uid)}}:
            sound = all(
                0 < len(word) <= LONGEST_NAME and word.isprintable() for word in (name, uid)
            )
            return Pod(namespace, name, uid) if sound else None
    return None


def _forbidden(message: str) -> Refused:
    hint = "an admin sets FORGE_ENROL_ISSUER and FORGE_ENROL_ACCOUNTS; the pod projects its token"
    return Refused(HTTPStatus.FORBIDDEN, "forbidden", message, hint=hint)
