#!/usr/bin/env bash
# Surprise: boto3 1.44.8 sends a CRC32 with DeleteObjects even where checksums are "when_required",
# and no Content-MD5, which the same request carried for years.
#
# request_checksum_calculation="when_required" is the documented way to talk to S3 servers that do
# not know the checksums that boto3 adds since 1.36. It does what one expects of put_object. But S3
# requires a checksum of some requests, DeleteObjects among them, so "required" holds there: the
# CRC32 stays, and the Content-MD5 that older servers demand is not sent in its place. Such a server
# answers MissingContentMD5, whatever is configured. Delete objects one at a time, or add the header
# in an event handler.
#
# It bears on schema/forge_schema/storage/s3/store.py, which deletes objects one at a time.
#
# Seen on 28 November 2026:
#   boto3 1.44.8
#   put_object, when_supported: checksum headers x-amz-checksum-crc32; Content-MD5 no
#   put_object, when_required: checksum headers none; Content-MD5 no
#   delete_objects, when_supported: checksum headers x-amz-checksum-crc32; Content-MD5 no
#   delete_objects, when_required: checksum headers x-amz-checksum-crc32; Content-MD5 no
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 botocore==1.44.8

cat >"$folder/send.py" <<'PYTHON'
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import boto3
from botocore.config import Config

came = {}


class Server(BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        came.clear()
        came.update({name.lower(): value for name, value in self.headers.items()})
        body = b"<DeleteResult/>" if self.command == "POST" else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = answer

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Server)
Thread(target=server.serve_forever, daemon=True).start()
print("boto3", boto3.__version__)
for call in ("put_object", "delete_objects"):
    for when in ("when_supported", "when_required"):
        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{server.server_port}",
            region_name="us-east-1",
            aws_access_key_id="me",
            aws_secret_access_key="secret",
            config=Config(request_checksum_calculation=when),
        )
        if call == "put_object":
            client.put_object(Bucket="bucket", Key="key", Body=b"x")
        else:
            client.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "key"}]})
        sums = sorted(n for n in came if n.startswith("x-amz-checksum-"))
        md5 = "yes" if "content-md5" in came else "no"
        print(f"{call}, {when}: checksum headers {', '.join(sums) or 'none'}; Content-MD5 {md5}")
PYTHON

seen=$("$folder/venv/bin/python" "$folder/send.py")
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
boto3 1.44.8
put_object, when_supported: checksum headers x-amz-checksum-crc32; Content-MD5 no
put_object, when_required: checksum headers none; Content-MD5 no
delete_objects, when_supported: checksum headers x-amz-checksum-crc32; Content-MD5 no
delete_objects, when_required: checksum headers x-amz-checksum-crc32; Content-MD5 no
EXPECTED
