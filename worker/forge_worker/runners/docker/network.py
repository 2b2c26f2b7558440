"""The containers' bridge network, from which cloud metadata services cannot be reached.

Metadata addresses hand out the machine's credentials to anyone who asks. iptables rules drop
packets from this network to them, except to port 53, because some clouds' name servers have such an
address. The network has no IPv6, so the IPv6 address is unreachable anyway. Network and rules
belong to the machine: they stay when the worker ends, and the next worker uses them.
A worker that may not change rules relies on infra/forge-metadata.service, which makes them as root.

Podman does not keep the containers of one network from each other. There, each container has a
network of its own, which goes with it; one set of rules is for the bridges of all of them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import APIError

from forge_worker.privacy import without_credentials
from forge_worker.runners.docker.engine import UNREACHABLE
from forge_worker.runners.docker.pause import PROGRAM, loaded
from forge_worker.runners.engines import EngineKind, kind_of
from forge_worker.runners.runner import FOLDER_LABEL, EngineUnreachable

if TYPE_CHECKING:
    from docker import DockerClient

    from forge_worker.runners.docker.engine import Engine

NETWORK = "forge"
BRIDGE = "forge0"
# In a rule, all bridges with such a name.
BRIDGES = "forge+"
BRIDGE_OPTION = "com.docker.network.bridge.name"
# Docker: not between the containers of a network. Podman: not between networks with this option.
APART_OPTION = "com.docker.network.bridge.enable_icc"
NETWORK_LABEL = "forge.network"
# Link-local addresses of all clouds, Azure's, Alibaba's.
METADATA = ("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32")
# The unit creates this file once the rules are in place; only root can write there.
MADE_BY_ROOT = Path("/run/forge-metadata")
NOT_THERE = "iptables is not installed"
EXPOSED = "containers could take the machine's credentials from the cloud's metadata addresses"
EXPOSED_HINT = (
    "install infra/forge-metadata.service, run the worker as root, set --network none, or accept it"
    " with --allow-metadata"
)
INTERFACES = Path("/sys/class/net")
SYSTEM_PATH = "/usr/sbin:/sbin"
CREATE_TRIES = 3
IPTABLES_TIMEOUT_S = 20


class Network:
    """The network as it was found; it is looked up again once its bridge is another."""

    def __init__(self) -> None:
        self._network: dict[str, Any] = {}
        self._number = ""
        # Podman makes a bridge with its first container only, and removes it with the last.
        self._seen = False

    def ensure(self, client: DockerClient, kind: EngineKind | None = None) -> str:
        """Create the network and its rules if they are missing.

        Returns:
            Why metadata addresses can still be reached, or "" if they cannot.
        """
        kind = kind or kind_of(client.info())
        if kind.rootless:
            return f"{kind} has its own networks, where this worker can make no rules"
        if not self._number or self._number != _number(_bridge(self._network)):
            self._network = _find_or_create(client, NETWORK, BRIDGE)
            self._number = _number(_bridge(self._network))
        if self._network.get("EnableIPv6"):
            return (
                f"the network {NETWORK} has IPv6, for which there are no rules; remove the network"
            )
        if kind.separates:
            return block_metadata(_bridge(self._network))
        self._seen = self._seen or _shows_bridge(client)
        return block_metadata(BRIDGES) if self._seen else _absent(BRIDGE)


def network_of(engine: Engine, container: str, folder: str) -> str:
    """Return the network for a container; `folder` is the id of its worker's.

    Raises:
        APIError: the engine could not make one.
    """
    if engine.kind.separates:
        return NETWORK
    # Interfaces have short names.
    bridge = f"forge-{hashlib.sha256(container.encode()).hexdigest()[:8]}"
    return str(_find_or_create(engine.client, container, bridge, {FOLDER_LABEL: folder})["Name"])


def remove_network(engine: Engine, container: str) -> None:
    """Remove the network that only this container had, if there is one and it is not in use."""
    with suppress(APIError, EngineUnreachable, *UNREACHABLE):
        if not engine.kind.separates:
            engine.client.api.remove_network(container)


def networks_of(engine: Engine, folder: str) -> list[str]:
    """Return the networks of single containers of a worker's folder, by the containers' names."""
    if engine.kind.separates:
        return []
    networks = engine.client.api.networks(filters={"label": f"{FOLDER_LABEL}={folder}"})
    return [network["Name"] for network in networks]


def _shows_bridge(client: DockerClient) -> bool:
    """Return whether the bridge of a container is on this machine: try it."""
    image = loaded(client)
    if image is None:
        return False
    options = client.api.create_host_config(network_mode=NETWORK)
    made = client.api.create_container(image, entrypoint=[PROGRAM], host_config=options)
    try:
        client.api.start(made["Id"])
        return bool(_number(BRIDGE))
    finally:
        client.api.remove_container(made["Id"], force=True)


def _absent(bridge: str) -> str:
    return f"the engine's bridge {bridge} is not on this machine"


def _bridge(network: dict[str, Any]) -> str:
    """Return the name of a network's interface; Podman's answers leave out that of our own."""
    ours = network.get("Labels", {}) or {}
    usual = BRIDGE if ours.get(NETWORK_LABEL) == NETWORK and _number(BRIDGE) else ""
    named: str = (network.get("Options") or {}).get(BRIDGE_OPTION, "")
    return named or usual or f"br-{network['Id'][:12]}"


def _number(bridge: str) -> str:
    """Return the kernel's number of a bridge, which no later one gets; "" if it is not here."""
    try:
        return (INTERFACES / bridge / "ifindex").read_text()
    except OSError:
        return ""


def block_metadata(bridge: str) -> str:
    """Drop packets from `bridge` to metadata addresses; return why that failed, or ""."""
    if bridge != BRIDGES and not (INTERFACES / bridge).exists():
        return _absent(bridge)
    program = _program()
    if program is None:
        return NOT_THERE
    # The raw table comes before address translation, so it also covers metadata services that
    # listen on the machine itself.
    listed, refusal = _iptables(program, "-S", "PREROUTING")
    for address, protocol in () if refusal else product(METADATA, ("tcp", "udp")):
        to, port = f"-d {address} -i {bridge}", f"-p {protocol} -m {protocol} ! --dport 53"
        if f"-A PREROUTING {to} {port} -j DROP" not in listed:
            refusal = refusal or _made(program, f"PREROUTING {to} {port} -j DROP".split())
    return f"iptables refused: {refusal}" if refusal and not _made_by_root(bridge) else ""


def _made(program: str, rule: list[str]) -> str:
    """Add a rule unless it exists in any notation; return why that failed, or ""."""
    _, missing = _iptables(program, "-C", *rule)
    return _iptables(program, "-I", *rule)[1] if missing else ""


def not_blockable() -> str:
    """Return why this user cannot block the addresses if root has not done so, or ""."""
    program = _program()
    if program is None:
        return NOT_THERE
    _, refusal = _iptables(program, "-S", "PREROUTING")
    return "" if not refusal or _made_by_root(BRIDGE) else f"iptables refused: {refusal}"


def _program() -> str | None:
    return shutil.which("iptables") or shutil.which("iptables", path=SYSTEM_PATH)


def _made_by_root(bridge: str) -> bool:
    try:
        return (MADE_BY_ROOT / bridge).stat().st_uid == 0 == MADE_BY_ROOT.stat().st_uid
    except OSError:
        return False


def _iptables(program: str, verb: str, *words: str) -> tuple[str, str]:
    """Return the output of iptables, and why it refused, or ""."""
    try:
        done = subprocess.run(  # noqa: S603  fixed words, the bridge's name is the engine's
            [program, "-w", "5", "-t", "raw", verb, *words],
            capture_output=True,
            text=True,
            timeout=IPTABLES_TIMEOUT_S,
            env=without_credentials(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    refusal = done.stderr.strip() or f"exit {done.returncode}"
    return done.stdout, "" if done.returncode == 0 else refusal


def _find_or_create(
    client: DockerClient, name: str, bridge: str, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    refusal: APIError | None = None
    for _ in range(CREATE_TRIES):
        if network := _find(client, name):
            return network
        try:
            client.api.create_network(
                name,
                driver="bridge",
                check_duplicate=True,
                enable_ipv6=False,
                labels={NETWORK_LABEL: name, **(labels or {})},
                # Only one bridge can have this name, so if two workers create the network at once,
                # the engine refuses the second.
                options={BRIDGE_OPTION: bridge, APART_OPTION: "false"},
            )
        except APIError as error:
            refusal = error
    if network := _find(client, name):
        return network
    raise refusal or RuntimeError(f"the network {name} disappears right after its creation")


def _find(client: DockerClient, name: str) -> dict[str, Any] | None:
    same_name = client.api.networks(names=[name])
    exact: list[dict[str, Any]] = [network for network in same_name if network["Name"] == name]
    return exact[0] if exact else None
