"""The process that runs a custom job's handler, separate from the agent's."""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from threading import Event
from typing import Any, Self

GROUP = "forge.handlers"
FAILED = 1


@dataclass(frozen=True)
class Context:
    """A handler's view of its job; the folders exist, and `work` is the current one.

    `env` has the variables that the job was submitted with; they are not in `os.environ`.
    """

    job_id: int
    attempt: int
    work: Path
    output: Path
    checkpoint: Path
    metrics: Path
    device: str
    env: Mapping[str, str]
    _preempted: Path
    _asked: Event = field(default_factory=Event)

    @classmethod
    def of_environment(cls, env: Mapping[str, str]) -> Self:
        """Return the context of the job that this process runs."""
        environ = os.environ
        return cls(
            job_id=int(environ["FORGE_JOB_ID"]),
            attempt=int(environ["FORGE_ATTEMPT"]),
            work=Path.cwd(),
            output=Path(environ["FORGE_OUTPUT_DIR"]),
            checkpoint=Path(environ["FORGE_CHECKPOINT_DIR"]),
            metrics=Path(environ["FORGE_METRICS_FILE"]),
            device=environ["FORGE_DEVICE"],
            env=env,
            _preempted=Path(environ["FORGE_PREEMPT_FILE"]),
        )

    def should_stop(self) -> bool:
        """Return whether the job has been asked to stop; it is killed after its grace period."""
        return self._asked.is_set() or self._preempted.exists()


Handler = Callable[[dict[str, Any], Context], dict[str, Any] | None]
"""Receives a job's arguments and context; the dict it returns becomes the job's result."""


def main() -> None:
    """Run the handler named by the first argument, with the arguments file named by the second."""
    name, file = sys.argv[1:]
    call = json.loads(Path(file).read_text(encoding="utf-8"))
    context = Context.of_environment(call["env"])
    signal.signal(signal.SIGTERM, lambda *_: context._asked.set())  # noqa: SLF001  our own
    try:
        result = _load(name)(call["arguments"], context)
        if result is not None:
            _write(result)
    except Exception:  # noqa: BLE001  whatever a handler raises goes into the job's log
        traceback.print_exc()
        sys.exit(FAILED)


def _load(name: str) -> Handler:
    for point in entry_points(group=GROUP, name=name):
        handler: Handler = point.load()
        return handler
    raise LookupError(f"no handler {name!r} is installed")


def _write(result: object) -> None:
    if not isinstance(result, dict):
        raise TypeError(f"a handler must return a dict or None, not {type(result).__name__}")
    path = Path(os.environ["FORGE_RESULT_FILE"])
    path.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
