"""Verify JSON web tokens of an OpenID Connect issuer for one audience, and those of pods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import structlog
from forge_schema.http_client import open_client, tls_context
from forge_schema.proxies import ProxyUnusable
from jwt import PyJWK, PyJWKClient, PyJWKSet

from forge_functions.errors import Refused

if TYPE_CHECKING:
    from forge_functions.settings import ServerSettings

ALGORITHMS = ["RS256", "ES256"]
METADATA = "/.well-known/openid-configuration"
TIMEOUT_S = 5
LEEWAY_S = 30
LIFESPAN_S = 300
REST_S = 5.0

log = structlog.get_logger(__name__)

# The pod's name becomes the worker's, which has at most 200 characters.
LONGEST_NAME = 200
SUBJECT = "system:serviceaccount:"


class IssuedTokens:
    """Verifies tokens of one issuer for one audience. Keys are cached for five minutes."""

    def __init__(self, issuer: str, audience: str) -> None:
        self._issuer, self._audience = issuer, audience
        self._rests_until = 0.0

    def claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a valid token.

        Raises:
            Refused: 401 for an invalid token, 503 if the issuer does not answer.
        """
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key(token),
                ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise unauthenticated() from error
        return claims

    def _key(self, token: str) -> PyJWK:
        if monotonic() < self._rests_until:
            raise _unavailable()
        try:
            return self._keys.get_signing_key_from_jwt(token)
        except IssuerFaulty as error:
            raise self.failed(error) from error

    def endpoint(self, name: str) -> str:
        """Return an address in the issuer's configuration.

        Raises:
            Refused: 503 if the issuer does not answer, or has none.
        """
        if monotonic() < self._rests_until:
            raise _unavailable()
        try:
            return str(self._configuration()[name])
        except (IssuerFaulty, KeyError) as error:
            raise self.failed(error) from error

    def failed(self, error: Exception) -> Refused:
        """Leave the issuer alone for a while, and return the refusal of a caller."""
        log.warning("issuer_unreachable", error=str(error))
        # Otherwise each request with a token would hold a thread while the issuer hangs.
        self._rests_until = monotonic() + REST_S
        return _unavailable()

    def _configuration(self) -> dict[str, Any]:
        issuer = self._issuer
        try:
            configuration: dict[str, Any] = fetched(issuer.rstrip("/") + METADATA)
            if configuration["issuer"] != issuer:
                raise IssuerFaulty(f"{issuer} names another issuer")
        except (httpx.HTTPError, ProxyUnusable, ValueError, TypeError, KeyError) as error:
            raise IssuerFaulty(f"{issuer} has no readable configuration: {error}") from error
        return configuration

    @cached_property
    def _keys(self) -> IssuerKeys:
        try:
            at = self._configuration()["jwks_uri"]
            return IssuerKeys(at, lifespan=LIFESPAN_S, timeout=TIMEOUT_S)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            raise IssuerFaulty(f"{self._issuer} has no readable keys: {error}") from error


class IssuerFaulty(Exception):
    """The issuer does not answer, or its answer is invalid."""


class IssuerKeys(PyJWKClient):
    """The issuer's public keys."""

    def fetch_data(self) -> object:
        """Fetch the keys as every other request is sent: urllib sends loopback to a proxy."""
        try:
            keys = fetched(self.uri)
            PyJWKSet.from_dict(keys)
        except (jwt.PyJWTError, httpx.HTTPError, ProxyUnusable, ValueError) as error:
            raise IssuerFaulty(f"{self.uri} has no readable keys: {error}") from error
        # By this, an unknown key does not make it fetch again and again.
        self._last_successful_fetch = monotonic()
        return keys


def fetched(url: str) -> dict[str, Any]:
    """Return a JSON object of the issuer.

    Raises:
        httpx.HTTPError: it does not answer.
        ProxyUnusable: the proxy on the way to it cannot be used.
        ValueError: the answer is no JSON object.
    """
    with open_client("forge-server", tls_context(), httpx.Timeout(TIMEOUT_S)) as client:
        answer = client.get(url).raise_for_status().json()
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")  # noqa: TRY004 - of the issuer's, too
    return answer


def unauthenticated() -> Refused:
    """Return the refusal of a token that is not valid here."""
    return Refused(
        HTTPStatus.UNAUTHORIZED,
        "unauthenticated",
        "the bearer token is not valid",
        hint="get a new one from the issuer; its audience must be this server",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _unavailable() -> Refused:
    return Refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "issuer_unreachable",
        "the keys of this token's issuer are not available now",
        hint="try again later, or use an API key",
        headers={"Retry-After": "5"},
    )


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
