"""Format requirements for explanations."""

from pydantic import JsonValue

from forge_schema.model.explanation import Requirement
from forge_schema.model.quantities import MIB, counted, size_text
from forge_schema.model.spec import (
    GANG_NETWORK,
    HANDLERS,
    INPUT,
    IS_SPOT,
    MAX_PRICE,
    RUNS,
    SECRET,
    SPOT,
)
from forge_schema.model.spec.inputs import FOLDER, PATHS

LABEL = "label:"
ADDRESS = "address"
GANGS_ALLOWED = "--gang-network host"
COUNTS = {"cpus": "CPU", "gpus": "GPU"}
WORDS = {"gpu_model": "GPUs like"}
SIZES = {"memory_mb": "memory", "disk_mb": "disk", "vram_mb": "VRAM per GPU"}


def lack(requirement: Requirement) -> str:
    """Describe what a worker lacks, and what it has instead."""
    instead = _instead(requirement)
    return f"{wish(requirement)} ({instead})" if instead else wish(requirement)


def wish(requirement: Requirement) -> str:
    """Describe what is wanted, as a noun."""
    name, wanted = requirement.name, requirement.wanted
    if name.startswith(LABEL):
        return _label(name.removeprefix(LABEL), str(wanted))
    if name in SIZES:
        return f"{size_text(_number(wanted) * MIB)} of {SIZES[name]}"
    if name in COUNTS:
        return counted(_number(wanted), COUNTS[name])
    if name == "target":
        return "the submitter's machine" if wanted == "local" else "a worker of the fleet"
    if name == ADDRESS:
        return f"an address for multi-node jobs ({GANGS_ALLOWED})"
    return f"{WORDS.get(name, name)} {wanted}"


def _label(name: str, pattern: str) -> str:
    own = {
        RUNS: f"support for {pattern.strip('*').replace('*', ' with ')}",
        HANDLERS: f"the handler {pattern.strip('*,')}",
        GANG_NETWORK: f"all ports, which --launcher {pattern} needs",
        SPOT: f"a machine that is {'' if pattern == IS_SPOT else 'not '}spot",
        MAX_PRICE: f"a price of at most {amount_text(pattern)} an hour",
    }
    if name in own:
        return own[name]
    if name.startswith(SECRET):
        return f"the secret {name.removeprefix(SECRET)}"
    if name.startswith(INPUT):
        return _input(name)
    return f"a label {name}" if pattern == "*" else f"label {name}={pattern}"


def _input(name: str) -> str:
    if name == PATHS:
        return "a container for it, which an input with a path of its own needs"
    kind, _, folder = name.removeprefix(INPUT).partition(":")
    return f"the folder {folder}" if kind == FOLDER else f"support for inputs of {kind}"


def _instead(requirement: Requirement) -> str:
    name, has = requirement.name, requirement.has
    if name in SIZES:
        return f"it has {size_text(_number(has) * MIB)}"
    own = {
        "target": "it is the submitter's" if has == "local" else "it is the fleet's",
        LABEL + SPOT: "it is" if has == IS_SPOT else "it is not",
        LABEL + GANG_NETWORK: f"it publishes only single ones: --gang-network {has}",
    }
    if name in own:
        return own[name]
    if name.startswith((LABEL + SECRET, LABEL + INPUT)):
        return "it has that of another owner" if has else ""
    if has in (None, "", []):
        return "it has none"
    shown = (
        ", ".join(map(str, has))
        if isinstance(has, list)
        else f"{has:g}"
        if isinstance(has, float)
        else str(has)
    )
    return f"it has {shown}"


def amount_text(value: JsonValue) -> str:
    """Return an amount of money as a person writes it: 2, not 2.0."""
    return str(value).removesuffix(".0")


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
