"""What pyright says of right and of wrong calls; mypy reads the examples with the whole tree.

basedpyright is pyright with its own Node.js from the package index, and needs no download of its
own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PYRIGHT = Path(sys.executable).with_name("basedpyright")
WRONG = (
    'client.submit(".", "ls", gpu=1)',
    'client.submit(".", "ls", gpus="one")',
    'dry_run(client.submit, ".", "ls", gpus="one")',
    'client.submit_many([{"cmd": "ls"}])',
    'train.submit("0.1")',
    'train.map(["0.1"])',
    "train.map([0.1], [3])",
    "text: str = train.submit(0.1).result()",
    "aside: str = client.jobs()",
)
BEFORE = """
from forge_client import Client, dry_run, job
client = Client()
@job(gpus=1)
def train(rate: float) -> int:
    return int(rate)
"""


def test_pyright_finds_what_is_wrong_and_nothing_in_the_examples(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(BEFORE + "\n".join(WRONG) + "\n")
    config = tmp_path / "pyrightconfig.json"
    config.write_text(
        json.dumps({
            "typeCheckingMode": "strict",
            "include": [str(ROOT / "examples" / "python"), str(wrong)],
            "extraPaths": [str(ROOT / folder) for folder in ("client", "schema")],
        })
    )  # fmt: skip
    run = subprocess.run(
        [PYRIGHT, "--project", config, "--outputjson", "--pythonpath", sys.executable],
        capture_output=True,
        check=False,
        text=True,
    )
    errors = [
        (one["file"], one["range"]["start"]["line"] - len(BEFORE.splitlines()))
        for one in json.loads(run.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    assert sorted(set(errors)) == [(str(wrong), line) for line in range(len(WRONG))]
