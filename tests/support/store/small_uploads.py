"""forge-server, with at most a million bytes per upload to S3."""

from __future__ import annotations

from forge_functions import server
from forge_schema.storage.s3 import signer as s3_signer


def main() -> None:
    """Serve."""
    s3_signer.LARGEST = 1_000_000
    server.main()


if __name__ == "__main__":
    main()
