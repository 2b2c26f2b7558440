"""Map bearer tokens of an OpenID Connect issuer to an owner and a role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from forge_schema.access.api_keys import UNSAID, Unsaid
from forge_schema.model.fields import is_name
from forge_schema.model.states import Role

from forge_functions.errors import Refused
from forge_functions.issued_tokens import IssuedTokens, unauthenticated
from forge_functions.settings import ServerSettings

LONGEST_OWNER, LONGEST_SUBJECT = 200, 255
# Highest first: a token may name several roles.
ROLES = (Role.ADMIN, Role.SUBMITTER, Role.VIEWER)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Person:
    """A caller's identity: owner and role, as its issuer said at a time in seconds, if known.

    `team` is the one that the groups stand for, None if they stand for none. With `everyone`, they
    see all owners' jobs.
    """

    subject: str
    owner: str
    role: Role
    issued: float | None = None
    team: str | Unsaid | None = UNSAID
    everyone: bool = False

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
        issued = issued if isinstance(issued, int | float) else None
        groups = self._groups(claims)
        team = UNSAID if groups is None else self._team(groups, subject)
        everyone = self._named(settings.oidc_everyone, groups or [], subject) is not None
        return Person(subject, owner, role, issued, team, everyone)

    def _groups(self, claims: dict[str, Any]) -> list[Any] | None:
        """Return the groups; None if the issuer did not say which they are.

        Some leave the claim out where groups are too many or the client is another: that is no word
        that the person is in none.
        """
        claim = _claim(claims, self._settings.oidc_team_claim)
        groups = [claim] if isinstance(claim, str) else claim
        if not isinstance(groups, list):
            return None
        is_said = not groups or any(isinstance(group, str) for group in groups)
        return groups if is_said else None

    def _team(self, groups: list[Any], subject: str) -> str | Unsaid | None:
        teams = self._settings.oidc_teams
        if not teams:
            return UNSAID
        named = self._named(teams, groups, subject)
        return None if named is None else teams[named]

    @staticmethod
    def _named(settings: Iterable[str], groups: list[Any], subject: str) -> str | None:
        """Return the first group of the settings that a person has; log one that is near."""
        found = next((group for group in settings if group in groups), None)
        if found is None and (near := _spelled_otherwise(groups, settings)):
            log.warning("group_spelled_otherwise", person=f"oidc:{subject}", **near)
        return found

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


def _spelled_otherwise(groups: list[Any], settings: Iterable[str]) -> dict[str, str]:
    """Return a group, and the one in the settings that differs by its case or by slashes alone."""
    known = {group.strip("/").casefold(): group for group in settings}
    for group in groups:
        if isinstance(group, str) and (setting := known.get(group.strip("/").casefold())):
            return {"group": group, "setting": setting}
    return {}


def _claim(claims: dict[str, Any], name: str) -> object:
    """Return a claim. Dots select members of objects, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    claim: object = claims
    for part in name.split("."):
        claim = claim.get(part) if isinstance(claim, dict) else None
    return claim


def _name(claim: object, longest: int) -> str | None:
    if isinstance(claim, str) and len(claim) <= longest and is_name(claim):
        return claim
    return None


def _forbidden(kind: type[Refused], message: str) -> Refused:
    hint = "an admin maps the issuer's roles to Forge's with FORGE_OIDC_ROLES"
    return kind(HTTPStatus.FORBIDDEN, "forbidden", message, hint=hint)
