"""Bearer tokens of an OpenID Connect issuer, mapped to an owner and a role."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from time import monotonic
from typing import Any

import httpx
import jwt
import structlog
from forge_schema.states import Role
from jwt import PyJWK, PyJWKClient

from forge_functions.errors import Refused
from forge_functions.settings import ServerSettings

ALGORITHMS = ["RS256", "ES256"]
METADATA = "/.well-known/openid-configuration"
TIMEOUT_S = 5
LEEWAY_S = 30
LIFESPAN_S = 300
REST_S = 5.0
LONGEST_OWNER, LONGEST_SUBJECT = 200, 255
# The highest first: several words of one token may each mean a role.
ROLES = (Role.ADMIN, Role.SUBMITTER, Role.VIEWER)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Person:
    """Who an issuer says a caller is, in our words."""

    subject: str
    owner: str
    role: Role


class Issuer:
    """Checks tokens of the issuer that the settings name; the keys are kept for five minutes."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._rests_until = 0.0

    def person(self, token: str) -> Person:
        """Return who a token is for.

        Raises:
            Refused: 401 for a token that is not valid, 403 for one without an owner or a role
                that the settings know, 503 when the issuer does not answer.
        """
        claims = self._claims(token)
        settings = self._settings
        subject = _name(claims["sub"], LONGEST_SUBJECT)
        owner = _name(_claim(claims, settings.oidc_owner_claim), LONGEST_OWNER)
        if subject is None or owner is None:
            raise _forbidden(f"the token's claim {settings.oidc_owner_claim!r} names no owner")
        role = self._role(_claim(claims, settings.oidc_role_claim))
        return Person(subject, owner, role)

    def _claims(self, token: str) -> dict[str, Any]:
        settings = self._settings
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key(token),
                ALGORITHMS,
                audience=settings.oidc_audience,
                issuer=settings.oidc_issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise _unauthenticated() from error
        return claims

    def _key(self, token: str) -> PyJWK:
        if monotonic() < self._rests_until:
            raise _unavailable()
        try:
            return self._keys.get_signing_key_from_jwt(token)
        except IssuerFaulty as error:
            log.warning("the issuer cannot be asked", error=str(error))
            # Else everybody who sends a token would hold a thread for as long as it hangs.
            self._rests_until = monotonic() + REST_S
            raise _unavailable() from error

    @cached_property
    def _keys(self) -> IssuerKeys:
        issuer = self._settings.oidc_issuer
        try:
            answer = httpx.get(issuer.rstrip("/") + METADATA, timeout=TIMEOUT_S)
            told = answer.raise_for_status().json()
            if told["issuer"] != issuer:
                raise IssuerFaulty(f"{issuer} says that it is somebody else")
            return IssuerKeys(told["jwks_uri"], lifespan=LIFESPAN_S, timeout=TIMEOUT_S)
        except (httpx.HTTPError, jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            raise IssuerFaulty(f"{issuer} does not describe itself: {error}") from error

    def _role(self, said: object) -> Role:
        words = said if isinstance(said, list) else [said]
        known = self._settings.oidc_roles or {role.value: role for role in ROLES}
        roles = {known[word] for word in words if isinstance(word, str) and word in known}
        if not roles:
            raise _forbidden(
                f"the token's claim {self._settings.oidc_role_claim!r} names no role here"
            )
        return next(role for role in ROLES if role in roles)


class IssuerFaulty(Exception):
    """The issuer is away, or what it says is no use."""


class IssuerKeys(PyJWKClient):
    """The issuer's public keys."""

    def fetch_data(self) -> object:
        try:
            fetched: object = super().fetch_data()
        except (jwt.PyJWTError, OSError, ValueError) as error:
            raise IssuerFaulty(f"{self.uri} gives no keys: {error}") from error
        return fetched


def _claim(claims: dict[str, Any], name: str) -> object:
    """Return a claim; dots lead into objects, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _name(said: object, longest: int) -> str | None:
    if isinstance(said, str) and 0 < len(said) <= longest and said.isprintable():
        return said
    return None


def _unauthenticated() -> Refused:
    return Refused(
        HTTPStatus.UNAUTHORIZED,
        "unauthenticated",
        "the bearer token is not valid",
        hint="get a new one from the issuer; its audience must be this server",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _forbidden(message: str) -> Refused:
    hint = "an admin maps the issuer's words to roles by FORGE_OIDC_ROLES"
    return Refused(HTTPStatus.FORBIDDEN, "forbidden", message, hint=hint)


def _unavailable() -> Refused:
    return Refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "issuer_unreachable",
        "the issuer of this token cannot be asked for its keys now",
        hint="try again in a while, or use an API key",
        headers={"Retry-After": "5"},
    )
