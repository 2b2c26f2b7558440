"""Map bearer tokens of an OpenID Connect issuer to an owner and a role."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from forge_schema.model.states import Role

from forge_functions.errors import Refused
from forge_functions.issued_tokens import IssuedTokens, unauthenticated
from forge_functions.settings import ServerSettings

LONGEST_OWNER, LONGEST_SUBJECT = 200, 255
# Highest first: a token may name several roles.
ROLES = (Role.ADMIN, Role.SUBMITTER, Role.VIEWER)


@dataclass(frozen=True, slots=True)
class Person:
    """A caller's identity: owner and role, as its issuer said at a time in seconds, if known."""

    subject: str
    owner: str
    role: Role
    issued: float | None = None

    @property
    def actor(self) -> str:
        """The person in the audit trail."""
        return f"oidc:{self.subject}"


class NoRole(Refused):
    """The issuer gives a person no role that is known here; `actor` is the person."""

    actor = ""


class Issuer:
    """Identifies callers by an issuer's tokens, as the settings map its claims."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.tokens = IssuedTokens(settings.oidc_issuer, settings.oidc_audience)
        self.sign_on = IssuedTokens(settings.oidc_issuer, settings.oidc_client_id)

    def person(self, token: str) -> Person:
        """Return the identity that a token was issued for.

        Raises:
            Refused: 401 for an invalid token, 403 for one without an owner or a role that the
                settings map, 503 if the issuer does not answer.
        """
        return self._person(self.tokens.claims(token))

    def signed_on(self, token: str, nonce: str) -> Person:
        """Return the person of the ID token of a login with this nonce; raises as `person`."""
        claims = self.sign_on.claims(token)
        if claims.get("nonce") != nonce:
            raise unauthenticated()
        return self._person(claims)

    def _person(self, claims: dict[str, Any]) -> Person:
        settings = self._settings
        subject = _name(claims["sub"], LONGEST_SUBJECT)
        owner = _name(_claim(claims, settings.oidc_owner_claim), LONGEST_OWNER)
        if subject is None or owner is None:
            message = f"the token's claim {settings.oidc_owner_claim!r} names no owner"
            raise _forbidden(Refused, message)
        try:
            role = self._role(_claim(claims, settings.oidc_role_claim))
        except NoRole as error:
            error.actor = f"oidc:{subject}"
            raise
        issued = claims.get("iat")
        return Person(subject, owner, role, issued if isinstance(issued, int | float) else None)

    def _role(self, claim: object) -> Role:
        words = claim if isinstance(claim, list) else [claim]
        known = self._settings.oidc_roles or {role.value: role for role in ROLES}
        roles = {known[word] for word in words if isinstance(word, str) and word in known}
        if not roles:
            raise _forbidden(
                NoRole,
                f"the token's claim {self._settings.oidc_role_claim!r} names no role known here",
            )
        return next(role for role in ROLES if role in roles)


def _claim(claims: dict[str, Any], name: str) -> object:
    """Return a claim. Dots select members of objects, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    claim: object = claims
    for part in name.split("."):
        claim = claim.get(part) if isinstance(claim, dict) else None
    return claim


def _name(claim: object, longest: int) -> str | None:
    if isinstance(claim, str) and 0 < len(claim) <= longest and claim.isprintable():
        return claim
    return None


def _forbidden(kind: type[Refused], message: str) -> Refused:
    hint = "an admin maps the issuer's roles to Forge's with FORGE_OIDC_ROLES"
    return kind(HTTPStatus.FORBIDDEN, "forbidden", message, hint=hint)
