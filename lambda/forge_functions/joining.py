"""What machines that join need: the wheel of this installation, and the server's own authority."""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.metadata import distribution
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from forge_schema.own_authority import fingerprint

from forge_functions.errors import Refused
from forge_functions.settings import FunctionsSettings, ServerSettings

DISTRIBUTION = "forge-queue"
PACKAGES = ("forge_client", "forge_functions", "forge_schema", "forge_worker")
WHEEL = "Wheel-Version: 1.0\nGenerator: forge\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel. The same installation makes the same bytes, on every server."""

    name: str
    content: bytes
    digest: str


@cache
def package() -> Package:
    """Return the wheel.

    Raises:
        Refused: 409 if this server has a part of the packages only, as on AWS Lambda.
    """
    if any(find_spec(name) is None for name in PACKAGES):
        raise Refused(
            HTTPStatus.CONFLICT,
            "package_missing",
            "this server has no package to give to a machine",
            hint="create the worker with `forge worker create`, and install it there by hand",
        )
    info = distribution(DISTRIBUTION)
    stem = f"forge_queue-{info.version}"
    files = {
        **dict(_code()),
        f"{stem}.dist-info/METADATA": (info.read_text("METADATA") or "").encode(),
        f"{stem}.dist-info/entry_points.txt": (info.read_text("entry_points.txt") or "").encode(),
        f"{stem}.dist-info/WHEEL": WHEEL.encode(),
    }
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join(f"{line}\n" for line in _record(files, record)).encode()
    content = _zipped(files)
    return Package(f"{stem}-py3-none-any.whl", content, hashlib.sha256(content).hexdigest())


def authority_of(settings: ServerSettings) -> str | None:
    """Return the certificate of the authority of the server's own, None if its chain has none."""
    if not isinstance(settings, FunctionsSettings) or settings.tls_cert is None:
        return None
    last = x509.load_pem_x509_certificates(Path(settings.tls_cert).read_bytes())[-1]
    is_root = last.issuer == last.subject
    return last.public_bytes(Encoding.PEM).decode() if is_root else None


def fingerprint_of(settings: ServerSettings) -> str:
    """Return the fingerprint of the server's own authority; "" if it has none."""
    certificate = authority_of(settings)
    return fingerprint(certificate) if certificate else ""


def _code() -> Iterator[tuple[str, bytes]]:
    for name in PACKAGES:
        spec = find_spec(name)
        for place in (spec and spec.submodule_search_locations) or ():
            root = Path(place)
            for path in sorted(root.rglob("*")):
                inside = path.relative_to(root)
                hidden = any(part.startswith((".", "__pycache__")) for part in inside.parts)
                if path.is_file() and not hidden:
                    yield f"{name}/{inside.as_posix()}", path.read_bytes()


def _record(files: dict[str, bytes], own: str) -> Iterator[str]:
    for name, content in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        yield f"{name},sha256={digest},{len(content)}"
    yield f"{own},,"


def _zipped(files: dict[str, bytes]) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, content in files.items():
            entry = ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, ZIP_DEFLATED)
    return packed.getvalue()
