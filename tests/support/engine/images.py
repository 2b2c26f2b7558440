"""The image that the tests' containers are made of."""

from __future__ import annotations

import os

# Debian with python3 and a shell; made by .ci/base-image.sh.
BASE_IMAGE = os.environ.get("FORGE_TEST_IMAGE", "forge-test-base:latest")
