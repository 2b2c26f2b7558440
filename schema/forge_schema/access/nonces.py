"""What may be used once, at whichever server."""

import time

from forge_schema.database.pool import Database

# Whoever made it has checked its age: the clocks of the server and the database may differ.
ANY_AGE_S = 2**30


class Nonces:
    """Remembers what was used, for a quarter of an hour."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def use(self, holder: str, nonce: str) -> bool:
        """Use something of a holder up; False if that was done before."""
        row = self._database.one(
            "use_nonce", key_id=holder, nonce=nonce, sent=int(time.time()), window=ANY_AGE_S
        )
        return row is not None and bool(row["taken"])
