"""An assistant takes a folder to a finished sweep: `forge mcp` on a running `forge up`."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

from support.client.command import FORGE
from support.client.own_up import in_a_folder_of_its_own

if TYPE_CHECKING:
    from pathlib import Path

    from support.client.command import Command

TRAIN = """
import json, os, sys
lr = float(sys.argv[1])
for step in range(3):
    with open(os.environ["FORGE_METRICS_FILE"], "a") as metrics:
        print(json.dumps({"step": step, "loss": lr * (3 - step)}), file=metrics)
print("trained with", lr)
with open(os.environ["FORGE_OUTPUT_DIR"] + "/model", "w") as model:
    model.write(str(lr))
"""


async def swept(forge: Command, folder: Path, to: Path) -> list[str]:
    """Return the answers on the way, each of which is asked for as the one before says."""
    from mcp import Client as Assistant  # noqa: PLC0415  half a second of each process
    from mcp import StdioServerParameters  # noqa: PLC0415  as above

    server = StdioServerParameters(
        command=str(FORGE), args=["mcp"], env=forge.environment(), cwd=forge.cwd
    )
    answers: list[str] = []

    async def ask(tool: str, **arguments: object) -> str:
        async with asyncio.timeout(120):
            result = await assistant.call_tool(tool, arguments)
        text = result.content[0].text  # type: ignore[union-attr]
        assert not result.is_error, text
        answers.append(text)
        return text

    async with Assistant(server) as assistant:
        await ask("workers")
        begun = await ask(
            "submit_sweep",
            folder=str(folder),
            command=[sys.executable, "train.py", "{lr}"],
            matrix={"lr": [0.5, 0.1, 0.2, 0.4]},
            fields={"name": "tune", "experiment": "tune"},
            key="first",
        )
        name = begun.split("'")[1]
        while "queued" in (waited := await ask("wait", sweep=name)) or "running" in waited:
            pass
        # What to order by, and which is best, is what the answers say.
        (metric,) = re.findall(r"metric='(\w+)'\) puts the best first", waited)
        ordered = await ask("sweep", name=name, metric=metric)
        (best,) = re.findall(r"next: by loss, the best is job (\d+)", ordered)
        await ask("logs", job=int(best))
        assert f"fetch_artifacts({best}, folder)" in await ask("job", job=best)
        await ask("fetch_artifacts", job=best, folder=str(to))
        await ask("submit", folder=str(folder), command="true", fields={"gpus": 64})
    return answers


def test_an_assistant_takes_a_folder_to_a_finished_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    with in_a_folder_of_its_own(tmp_path) as forge:
        up = forge("up", "-d", "--workers", "1")
        assert up.returncode == 0, up.stderr
        try:
            answers = asyncio.run(swept(forge, folder, tmp_path / "got"))
        finally:
            forge("down")
    workers, begun, *_, ordered, log, _, fetched, stuck = answers
    assert "will not start by itself: no worker" in stuck
    assert "4 jobs is submitted" in begun
    assert "idle" in workers
    assert ordered.startswith("4 succeeded\n")
    assert "lr=0.1" in ordered.split("\n")[1]
    assert "trained with 0.1" in log
    assert (tmp_path / "got" / "model").read_text() == "0.1"
    assert fetched.startswith("1 file")
