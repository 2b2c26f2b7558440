"""The image for the tests' containers."""

from __future__ import annotations

import os

# Debian with python3 and a shell; built by .ci/base-image.sh.
BASE_IMAGE = os.environ.get("FORGE_TEST_IMAGE", "forge-test-base:latest")
