"""The containers' own bridge network, from which no cloud's metadata service can be reached.

The metadata addresses hand out the machine's credentials to whoever asks. A rule of iptables
drops what containers of this network send there, except to port 53: on some clouds the name
server has such an address. The network has no IPv6, so the IPv6 address is out of reach as it
is. Network and rule stay when the worker ends: they are the machine's, and the next one uses them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import APIError

if TYPE_CHECKING:
    from docker import DockerClient

NETWORK = "forge"
BRIDGE = "forge0"
BRIDGE_OPTION = "com.docker.network.bridge.name"
METADATA = "169.254.0.0/16"
SYSTEM_PATH = "/usr/sbin:/sbin"
CREATE_TRIES = 3
IPTABLES_TIMEOUT_S = 20


def ensure_network(client: DockerClient) -> str:
    """Make the network and its rules where they are missing.

    Returns:
        Why metadata addresses can still be reached, or "": they cannot.
    """
    network = _find_or_create(client)
    if network.get("EnableIPv6"):
        return f"the network {NETWORK} has IPv6, for which there is no rule; remove it"
    bridge = (network.get("Options") or {}).get(BRIDGE_OPTION, f"br-{network['Id'][:12]}")
    return block_metadata(bridge)


def block_metadata(bridge: str) -> str:
    """Drop what comes from `bridge` for a metadata address; return why not, or ""."""
    if not (Path("/sys/class/net") / bridge).exists():
        return f"the engine's bridge {bridge} is not of this machine"
    program = shutil.which("iptables") or shutil.which("iptables", path=SYSTEM_PATH)
    if program is None:
        return "iptables is not installed"
    # This table comes before any rewriting of addresses, so it also catches metadata services
    # that listen on the machine itself.
    for protocol in ("tcp", "udp"):
        port = ["-p", protocol, "!", "--dport", "53"]
        rule = ["PREROUTING", "-i", bridge, "-d", METADATA, *port, "-j", "DROP"]
        if _iptables(program, "-C", rule) and (refusal := _iptables(program, "-I", rule)):
            return f"iptables refused: {refusal}"
    return ""


def _iptables(program: str, verb: str, rule: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603  fixed words, the bridge's name is the engine's
            [program, "-w", "5", "-t", "raw", verb, *rule],
            capture_output=True,
            text=True,
            timeout=IPTABLES_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"


def _find_or_create(client: DockerClient) -> dict[str, Any]:
    refusal: APIError | None = None
    for _ in range(CREATE_TRIES):
        if found := _find(client):
            return found
        try:
            client.networks.create(
                NETWORK,
                driver="bridge",
                check_duplicate=True,
                enable_ipv6=False,
                labels={"forge.network": NETWORK},
                # A name that only one bridge can have: of two workers that create the network
                # at once, the engine refuses the second. Containers do not see each other.
                options={BRIDGE_OPTION: BRIDGE, "com.docker.network.bridge.enable_icc": "false"},
            )
        except APIError as error:
            refusal = error
    if found := _find(client):
        return found
    raise refusal or RuntimeError(f"the network {NETWORK} vanishes as soon as it is made")


def _find(client: DockerClient) -> dict[str, Any] | None:
    same_name = client.api.networks(names=[NETWORK])
    exact: list[dict[str, Any]] = [found for found in same_name if found["Name"] == NETWORK]
    return exact[0] if exact else None
