"""A multirun of Hydra, each of whose points is a job.

FORGE_TEST_HYDRA_BIN names a folder with the programs of an environment that has hydra-core and what
the client needs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import forge_client as forge
import pytest
from support import trees

if TYPE_CHECKING:
    from support.workers.worker import Bed

ROOT = Path(__file__).parents[4]
BIN = os.environ.get("FORGE_TEST_HYDRA_BIN", "")
pytestmark = pytest.mark.skipif(not BIN, reason="FORGE_TEST_HYDRA_BIN is not set")

FILES = {
    "conf/config.yaml": "lr: 0.1\nmodel: {depth: 2}\n",
    "helper.py": "def double(x): return 2 * x\n",
    "train.py": """
import os
import hydra
import helper
from hydra.core.hydra_config import HydraConfig

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    if cfg.lr > 5:
        raise ValueError("lr is too large")
    with open(os.path.join(HydraConfig.get().runtime.output_dir, "model.txt"), "w") as file:
        file.write(f"{cfg.lr} {cfg.model.depth}")
    return helper.double(cfg.lr), cfg.model.depth

if __name__ == "__main__":
    main()
""",
}


def test_each_point_of_a_multirun_is_a_job_with_its_files_where_hydra_has_them(
    process: Bed, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    trees.write(project, {name: text.encode() for name, text in FILES.items()})
    process.worker("one", max_jobs=3)
    run = subprocess.run(
        [
            *(f"{BIN}/python", "train.py", "-m", "lr=0.1,9", "model.depth=3"),
            *("hydra/launcher=forge", "hydra.launcher.cpus=0.1", "hydra.launcher.max_failures=0"),
            *(f"hydra.launcher.env={{PATH: '{BIN}:/usr/bin:/bin'}}", "hydra.sweep.dir=swept"),
        ],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'client'}:{ROOT / 'schema'}",
            "FORGE_DATABASE_URL": process.database.url,
            "FORGE_STORE_URL": process.store.url,
            "FORGE_OWNER": "ann",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "ValueError: lr is too large" in run.stderr
    assert (project / "swept/0/model.txt").read_text() == "0.1 3"
    assert (project / "swept/0/.hydra/overrides.yaml").read_text() == "- lr=0.1\n- model.depth=3\n"
    with forge.Client(
        database_url=process.database.url, store_url=process.store.url, owner="ann"
    ) as client:
        bad, good = client.runs()
    assert [(run.name, run.state) for run in (good, bad)] == [
        ("train", "succeeded"),
        ("train", "failed"),
    ]
    assert good.parameters == {"lr": 0.1, "model_depth": 3}
    assert good.result == {"returned": [0.2, 3]}
