#!/usr/bin/env bash
# Surprise: Python 3.13 refuses an authority that `openssl req -x509` makes, although it was told to
# trust it.
#
# From 3.13 on, ssl.create_default_context() sets VERIFY_X509_STRICT. The release notes speak of
# certificates that are malformed, and one would expect what OpenSSL 3 itself writes to be fine.
# But its default configuration gives an authority no key usage, so each server certificate that
# the authority signs is refused, also one with both key identifiers. The same certificate used as
# the server's own, self-signed, is trusted: a first try on one machine shows nothing. What helps is
# a new authority with `-addext keyUsage=critical,keyCertSign,cRLSign`; its key can stay.
#
# It decided the hint in schema/forge_schema/http_client.py and "An authority of your own" in
# docs/deploy-server.md.
#
# Seen on 28 November 2026 with Python 3.11.7, 3.13.5 (OpenSSL 3.5.9) and 3.14.8 (3.6.5); before
# 3.13 the program sets the flag itself:
#   self-signed server        trusted
#   authority by default      refused: CA cert does not include key usage extension
#   … and key identifiers     refused: CA cert does not include key usage extension
#   authority with key usage  trusted
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
ec="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

openssl req -x509 $ec -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout self.key -out self.pem 2>/dev/null
openssl req -x509 $ec -subj /CN=ours -keyout authority.key -out default.pem 2>/dev/null
openssl req -x509 -key authority.key -subj /CN=ours -addext keyUsage=critical,keyCertSign,cRLSign \
    -out usage.pem
openssl req $ec -subj /CN=localhost -keyout server.key -out request.pem 2>/dev/null

signed() { # NAME AUTHORITY EXTENSION...
    printf '%s\n' subjectAltName=DNS:localhost "${@:3}" >"$1.ext"
    openssl x509 -req -in request.pem -CA "$2" -CAkey authority.key -CAcreateserial \
        -extfile "$1.ext" -out "$1.pem" 2>/dev/null
}
identifiers=(subjectKeyIdentifier=hash authorityKeyIdentifier=keyid)
signed bare default.pem subjectKeyIdentifier=none
signed identified default.pem "${identifiers[@]}"
signed right usage.pem "${identifiers[@]}"

cat >try.py <<'PYTHON'
import socket
import ssl
import sys
from threading import Thread


def serve(there, certificate, key):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    try:
        server.wrap_socket(there, server_side=True).close()
    except OSError:
        pass


def told(authority, certificate, key):
    client = ssl.create_default_context(cafile=authority)
    if sys.version_info < (3, 13):
        client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert client.verify_flags & ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()
    Thread(target=serve, args=(there, certificate, key), daemon=True).start()
    try:
        client.wrap_socket(here, server_hostname="localhost").close()
    except ssl.SSLCertVerificationError as error:
        return f"refused: {error.verify_message}"
    return "trusted"


print("self-signed server       ", told("self.pem", "self.pem", "self.key"))
print("authority by default     ", told("default.pem", "bare.pem", "server.key"))
print("… and key identifiers    ", told("default.pem", "identified.pem", "server.key"))
print("authority with key usage ", told("usage.pem", "right.pem", "server.key"))
PYTHON

python3 --version
python3 try.py | tee seen
why="refused: CA cert does not include key usage extension"
diff seen - <<SEEN
self-signed server        trusted
authority by default      $why
… and key identifiers     $why
authority with key usage  trusted
SEEN
