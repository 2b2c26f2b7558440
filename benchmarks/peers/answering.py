"""The loop of a queue's process: a line asks, a line answers.

Only the standard library: it runs in each queue's own environment.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any


def jobs_of_a_sweep(jobs: int) -> list[dict[str, Any]]:
    """Return jobs that differ in name, command and parameters, as those of a sweep do."""
    return [
        {
            "name": f"sweep {n}",
            "command": ["python", "train.py", "--lr", str(n / 1000)],
            "parameters": {"lr": n / 1000},
        }
        for n in range(jobs)
    ]


def answer(verbs: dict[str, Callable[..., Any]]) -> None:
    """Run the verbs that stdin asks for, in one event loop, until it ends."""
    asyncio.run(_answer(verbs))


async def _answer(verbs: dict[str, Callable[..., Any]]) -> None:
    said = sys.stdout
    # What a queue prints must not stand between the answers.
    sys.stdout = sys.stderr
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        answered = verbs[asked.pop("verb")](**asked)
        if inspect.isawaitable(answered):
            answered = await answered
        said.write(json.dumps(answered) + "\n")
        said.flush()
