"""The challenge of a login."""

from __future__ import annotations

from forge_schema.http_client import challenge_of


def test_a_challenge_is_that_of_the_rfc() -> None:
    # Appendix B of RFC 7636.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert challenge_of(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
