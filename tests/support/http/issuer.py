"""An OpenID Connect issuer on loopback, which a test can break."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from uuid import NAMESPACE_DNS, uuid5

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Iterator

AUDIENCE = "forge-here"
CLIENT = "forge dashboard"
# A service account of a cluster that uses this issuer.
ACCOUNT = "forge:forge-worker"


class Issuer:
    """Signs tokens, and publishes its keys until the test breaks it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {}
        # Of the client, if it has one; and the codes that were not exchanged yet.
        self.secret = ""
        self._codes: dict[str, dict[str, Any]] = {}
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.publish()

    def publish(self) -> None:
        """Serve the issuer's documents."""
        ours = {
            "rsa": RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True),
            "ec": ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True),
        }
        keys = [{**key, "kid": kid, "use": "sig"} for kid, key in ours.items()]
        about = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        about["authorization_endpoint"] = f"{self.url}/authorize"
        about["token_endpoint"] = f"{self.url}/token"
        self.answers = {"/.well-known/openid-configuration": about, "/keys": {"keys": keys}}

    def token(self, kid: str = "rsa", **claims: Any) -> str:  # noqa: ANN401  claims of all types
        """Sign a token for ann, a submitter; `claims` replace its claims, None removes one."""
        soon = datetime.now(UTC) + timedelta(minutes=5)
        said = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": soon}
        said |= {"forge_role": "submitter", **claims}
        key, algorithm = (self.rsa, "RS256") if kid == "rsa" else (self.ec, "ES256")
        kept = {name: claim for name, claim in said.items() if claim is not None}
        return jwt.encode(kept, key, algorithm, headers={"kid": kid})

    def authorized(self, location: str, **claims: Any) -> str:  # noqa: ANN401  as above
        """Log ann in at the address that a client leads to; return where the browser goes next."""
        said = {name: value[0] for name, value in parse_qs(urlsplit(location).query).items()}
        code = token_urlsafe(16)
        token = self.token(**{"aud": said["client_id"], "nonce": said["nonce"], **claims})
        self._codes[code] = {**said, "token": token}
        return f"{said['redirect_uri']}?{urlencode({'code': code, 'state': said['state']})}"

    def exchanged(self, said: dict[str, str], basic: str) -> dict[str, str] | None:
        """Return the answer to a client that exchanges a code; None if it may not."""
        begun = self._codes.pop(said["code"], None)
        digest = sha256(said["code_verifier"].encode()).digest()
        challenge = urlsafe_b64encode(digest).rstrip(b"=").decode()
        own = b64encode(f"{quote(CLIENT, safe='')}:{quote(self.secret, safe='')}".encode()).decode()
        if begun is None or begun["code_challenge"] != challenge:
            return None
        if begun["redirect_uri"] != said["redirect_uri"] or basic != f"Basic {own}":
            return None
        return {"id_token": begun["token"], "token_type": "Bearer"}

    def pod_token(
        self,
        name: str = "forge-worker-cuda-x7f",
        account: str = ACCOUNT,
        **claims: Any,  # noqa: ANN401  as above
    ) -> str:
        """Sign a token as a cluster does for a pod of the service account `namespace:name`."""
        namespace, _, service = account.partition(":")
        bound = {
            "namespace": namespace,
            "pod": {"name": name, "uid": str(uuid5(NAMESPACE_DNS, name))},
            "serviceaccount": {"name": service, "uid": str(uuid5(NAMESPACE_DNS, service))},
        }
        said = {"aud": ["forge"], "sub": f"system:serviceaccount:{account}", "kubernetes.io": bound}
        return self.token(**{**said, "forge_role": None, **claims})


@contextmanager
def issuing() -> Iterator[Issuer]:
    """Run an issuer until the block ends."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            page = issuer.answers.get(self.path)
            self.send_response(200 if page is not None else 500)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(page if isinstance(page, bytes) else json.dumps(page).encode())

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            said = {name: value[0] for name, value in parse_qs(form).items()}
            told = issuer.exchanged(said, self.headers.get("Authorization", ""))
            self.send_response(400 if told is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(told or {"error": "invalid_grant"}).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its own name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
    with answering(server):
        yield issuer
