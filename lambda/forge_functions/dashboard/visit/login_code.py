"""Codes that `forge login` exchanges for a session of its own, once and within five minutes."""

import hmac
import re

from forge_schema.access.sessions import Sessions
from forge_schema.database.pool import Row
from forge_schema.pkce import challenge_of

from forge_functions.auth import short_token
from forge_functions.dashboard.visit.session import Visitor
from forge_functions.services import Services

PURPOSE = b"forge login code"
# Time enough to carry it to another window.
LASTS_S = 300
_FORM = re.compile(r"([0-9a-f]{16})-([0-9]{1,12})-([0-9a-f]{32})")


def mint(shared: Services, who: Visitor, challenge: str) -> str:
    """Return a code of a visitor's session, for whoever knows the challenge's verifier."""
    sent = int(who.now.timestamp())
    seal = _seal(shared, who.session, sent, who.version, challenge)
    return f"{who.session}-{sent}-{seal}"


def use(shared: Services, code: str, verifier: str) -> Row | None:
    """Return the session that a code is from and use the code up; None if it is not valid."""
    said = _FORM.fullmatch(code)
    found = Sessions(shared.database).valid(said[1]) if said else None
    if said is None or found is None:
        return None
    sent, challenge = int(said[2]), challenge_of(verifier)
    ours = _seal(shared, found["id"], sent, short_token.version(found), challenge)
    if not hmac.compare_digest(said[3], ours):
        return None
    once = {"key_id": found["id"], "nonce": said[3], "sent": sent, "window": LASTS_S}
    row = shared.database.one("use_nonce", **once)
    return found if row and row["fresh"] and row["taken"] else None


def _seal(shared: Services, session: str, sent: int, version: str, challenge: str) -> str:
    text = f"{session} {sent} {version} {challenge}".encode()
    return hmac.new(short_token.secret(shared, PURPOSE), text, "sha256").hexdigest()[:32]
