"""The `forge submit` command that submits the same job as a form."""

import shlex
from collections.abc import Mapping
from typing import Any

OPTIONS = {
    "config_name": "--config",
    "name": "--name",
    "queue": "--queue",
    "priority": "--priority",
    "target": "--target",
    "image": "--image",
    "max_failures": "--max-failures",
    "nodes": "--nodes",
    "checkpoint_dir": "--checkpoint-dir",
    "launcher": "--launcher",
    "same": "--same",
}
NEEDS = {
    "gpus": "--gpu",
    "gpu_model": "--gpu-model",
    "accelerator": "--accelerator",
    "cpus": "--cpus",
}
ROOMS = {"vram_mb": "--vram", "memory_mb": "--memory", "disk_mb": "--disk"}


def submit_line(asked: Mapping[str, Any]) -> str:
    """Return the command to run in the folder with the code."""
    needs = asked.get("resources", {})
    words = ["forge", "submit", "."]
    for options, said in ((OPTIONS, asked), (NEEDS, needs)):
        words += [_word(option, said[name]) for name, option in options.items() if name in said]
    words += [_word(o, f"{needs[name]}MiB") for name, o in ROOMS.items() if name in needs]
    if "timeout_s" in asked:
        words.append(_word("--timeout", f"{asked['timeout_s']}s"))
    if source := asked.get("from_checkpoint"):
        words.append(_word("--from-checkpoint", _checkpoint(source)))
    for name, option in (("labels", "--label"), ("env", "--env")):
        words += [_word(option, f"{n}={v}") for n, v in asked.get(name, {}).items()]
    patterns = asked.get("checkpoint")
    # Unvalidated, as below.
    named = patterns if isinstance(patterns, list) else []
    words += [_word("--checkpoint", pattern) for pattern in named]
    words += ["--mixed"] * bool(asked.get("mixed"))
    command = asked.get("command")
    return " ".join([*words, *(["--", shlex.join(command)] if command else [])])


def unsaid(asked: Mapping[str, Any]) -> list[str]:
    """Return the fields that have no command-line option."""
    known = {*OPTIONS, "mixed", "resources", "timeout_s", "labels", "env", "command"}
    known |= {"from_checkpoint", "checkpoint", "bundle_digest", "owner", "idempotency_key"}
    return sorted(set(asked) - known)


def _checkpoint(source: object) -> str:
    # Unvalidated JSON may be anything.
    said = source if isinstance(source, dict) else {}
    place = f":{said['attempt']}.{said.get('number')}" if "attempt" in said else ""
    return f"{said.get('job_id')}{place}"


def _word(option: str, value: object) -> str:
    return f"{option} {shlex.quote(str(value))}"
