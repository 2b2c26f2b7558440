"""The authorities of certificates that the machine trusts, which the tests do without."""

from __future__ import annotations

import os

KEPT = "FORGE_TEST_"
NAMES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def with_authorities() -> dict[str, str]:
    """Return the environment with the machine's own authorities, for downloads of packages."""
    others = {name: value for name, value in os.environ.items() if name not in NAMES}
    return others | {name: others[KEPT + name] for name in NAMES if KEPT + name in others}
