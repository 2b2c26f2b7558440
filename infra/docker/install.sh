#!/bin/sh
# Install what the arguments name from the downloaded packages, and nothing from anywhere else.
set -eu
/opt/forge/bin/python pip.whl/pip install --quiet --disable-pip-version-check \
    --no-cache-dir --no-index --find-links packages "$@"
# Of the hundreds of services that botocore describes, only one is used.
find /opt/forge/lib/*/site-packages/botocore/data -mindepth 1 -maxdepth 1 -type d ! -name s3 \
    -exec rm -rf {} +
