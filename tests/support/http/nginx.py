"""nginx with the configuration that we ship, on this machine."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from support.cloud.cloudformation import INFRA

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.http.certificates import Certificates


def program(name: str = "nginx") -> str | None:
    """Return a program's path; Debian has nginx where only root looks."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


def command(
    nginx: str, folder: Path, port: int, made: Certificates, servers: Sequence[str]
) -> list[str]:
    """Configure it as we ship it, and return the command that runs it in the foreground."""
    text = (INFRA / "proxy" / "nginx.conf").read_text(encoding="utf-8")
    (behind,) = re.findall(r"server server:8900.*;", text)
    for ours, here in (
        ("/tmp/", f"{folder}/"),  # noqa: S108  what the file says
        (behind, " ".join(behind.replace("server:8900", one) for one in servers)),
        ("listen 8443", f"listen 127.0.0.1:{port}"),
        ("/run/secrets/tls_cert", made.server),
        ("/run/secrets/tls_key", made.key),
    ):
        assert ours in text
        text = text.replace(ours, str(here))
    config = folder / "nginx.conf"
    config.write_text(text, encoding="utf-8")
    # Its workers are another user, who may not open the test's folder.
    return [nginx, "-e", "stderr", "-c", str(config), "-g", "daemon off; user root;"]
