"""An explanation is the same directly and through a server, and reads well in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from forge_client.cli.jobs import explain
from support.client.reaching import WAYS, reaching

if TYPE_CHECKING:
    from pathlib import Path

    from forge_schema.model.explanation import Explanation
    from support.queue.rig import Rig

T4 = {"name": "NVIDIA T4", "uuid": "GPU-a", "vram_mb": 16_384}


@pytest.mark.parametrize("way", WAYS)
def test_the_sdk_and_the_command_say_what_the_queue_says(
    way: str, rig: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.worker("t4-1", accelerator="cuda", gpus=[T4])
    rig.worker("cpu-1")
    rig.admin.set_queue("default", {"paused": True})
    job_id = rig.submit(gpus=1, vram_mb=24_576)
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        said = client.job(job_id).explain(workers=1)
        with pytest.raises(ClientError, match="there is no job"):
            client.job(job_id + 1).explain()
    assert (said.outlook, said.limits[0].code) == ("held", "queue_paused")
    assert (said.workers[0].worker, said.left_out) == ("t4-1", 1)
    assert said.remedies[1].changes == {"vram_mb": 16_384}
    assert _printed(said, capsys) == [
        "job    1 job, queued",
        "why    it waits: the queue default is paused",
        "queue  default, priority 0",
        "",
        "to do    resume the queue default: forge queue resume default",
        "you can  request 16 GiB of VRAM per GPU instead of 24 GiB: then t4-1 can run it",
        "         start another worker with 1 GPU, 24 GiB of VRAM per GPU",
        "",
        "WORKER CHANCE JOBS HEARD WHY",
    ]


def _printed(said: Explanation, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()  # a server in this process writes its log there
    explain._print(said)
    *lines, titles = capsys.readouterr().out.splitlines()[:9]
    return [*lines, " ".join(titles.split())]
