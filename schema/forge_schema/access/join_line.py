"""The line that makes a machine a worker when it is pasted there, into sh, bash or zsh."""

import re
from string import Template

from forge_schema.model.errors import ForgeError
from forge_schema.own_authority import AUTHORITY

PACKAGE = "/api/v1/workers/package"
# Inside two kinds of quotes, so nothing that a shell or Python could take for its own.
PLAIN = re.compile(r"https?://[A-Za-z0-9.:/_~%\[\]-]+")
# It runs nothing that the line does not vouch for. No single quotes, which would end the argument.
PROGRAM = Template(
    'import hashlib,io,os,sys,urllib.request as r,zipfile;u="$url";'
    # Here and in what it starts, loopback is reached past any proxy.
    'e=os.environ;e["no_proxy"]=e.get("no_proxy",e.get("NO_PROXY",""))+",localhost,127.0.0.1,[::1]";'
    'sys.excepthook=lambda t,e,b:sys.stderr.write(f"forge: {u} cannot be read: {e}\\n  check that '
    "this machine reaches it; if its certificate comes from an authority of your own, export "
    'SSL_CERT_FILE=authority.pem; then paste the line again\\n");'
    "${trust}"
    'p=r.urlopen(u+"$package",timeout=60,context=c).read();'
    'hashlib.sha256(p).hexdigest()=="$digest"or sys.exit(f"forge: {u} sends another version than '
    'this line is for; ask an admin for a new line: forge worker add NAME");'
    'exec(zipfile.ZipFile(io.BytesIO(p)).read("forge_worker/commands/join.py"));join(u,p,a)'
)
# The authority is all that is asked of a server which is not trusted yet.
TRUST = Template(
    'import ssl;a=r.urlopen(u+"$path",timeout=60,context=ssl._create_unverified_context())'
    ".read(10**5).decode();d=ssl.PEM_cert_to_DER_cert(a);"
    'hashlib.sha256(d).hexdigest()=="$fingerprint"or sys.exit(f"forge: {u} has another authority '
    'than this line is for; ask an admin for a new line: forge worker add NAME");'
    "a=ssl.DER_cert_to_PEM_cert(d);c=ssl.create_default_context(cadata=a);"
)
NO_TRUST = 'a="";c=None;'
LINE = Template(
    "for p in python3 python3.13 python3.12 python3.11 ''; do "
    '"$$p" -c "import sys;sys.exit(sys.version_info<(3,11))" 2>/dev/null && break; done; '
    """if [ "$$p" ]; then FORGE_JOIN=$token "$$p" -c '$program'; """
    "else echo 'forge: there is no Python 3.11 or later here; install one with its venv module "
    "(Debian: apt install python3-venv), then paste the line again' >&2; (exit 1); fi"
)


class UrlUnusable(ForgeError):
    """The server's URL cannot be part of a line."""


def join_line(url: str, token: str, digest: str, authority: str = "") -> str:
    """Return the line for a machine.

    The token is a variable of the command, so it is in no list of processes.

    Args:
        url: where the machine reaches the server.
        token: the token to join with.
        digest: the SHA-256 of the server's package.
        authority: the fingerprint of the server's own authority, if it has one.

    Raises:
        UrlUnusable: the URL is not a plain one.
    """
    if not PLAIN.fullmatch(url):
        raise UrlUnusable(
            f"{url!r} cannot be put into a line for a machine",
            hint="name the server as https://forge.example:8900",
        )
    own = authority and url.startswith("https:")
    trust = TRUST.substitute(path=AUTHORITY, fingerprint=authority) if own else NO_TRUST
    program = PROGRAM.substitute(url=url.rstrip("/"), package=PACKAGE, digest=digest, trust=trust)
    return LINE.substitute(token=token, program=program)
