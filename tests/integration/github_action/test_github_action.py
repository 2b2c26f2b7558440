"""The GitHub Action's steps, run as GitHub runs them, against a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest
import yaml
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Reason, Role
from support.client.command import FORGE, command
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.client.command import Command
    from support.queue.rig import Rig

FOLDER = Path(__file__).parents[3] / "infra" / "github-action"
ACTION = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
EXPRESSION = re.compile(r"\$\{\{ (inputs|steps\.(\w+)\.outputs)\.([\w-]+) \}\}")
INSTALL, SUBMIT, FOLLOW, CANCEL = STEPS


@dataclass
class Runner:
    """What GitHub's runner knows of one use of the action."""

    command: Command
    inputs: dict[str, str]
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    @contextmanager
    def started(self, name: str) -> Iterator[subprocess.Popen[str]]:
        """Start a step in the shell that it names, with the runner's variables and files."""
        step, temp = STEPS[name], self.command.cwd.parent
        output, summary = temp / "output", temp / "summary"
        output.write_text("")
        script = temp / "script.sh"
        script.write_text(self._filled(step["run"]), encoding="utf-8")
        assert step["shell"] == "bash"
        own = {key: self._filled(value) for key, value in step["env"].items()}
        files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
        places = {"GITHUB_ACTION_PATH": str(FOLDER), "RUNNER_TEMP": str(temp)}
        with subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.command.cwd,
            env={**self.command.environment(), **files, **places, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()
        lines = output.read_text().splitlines()
        self.outputs[step.get("id", name)] = dict(line.split("=", 1) for line in lines)

    def run(self, name: str) -> tuple[int, str]:
        """Run a step; return its exit code and what it prints."""
        with self.started(name) as process:
            said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def _filled(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            known = self.inputs if found[1] == "inputs" else self.outputs.get(found[2], {})
            return known.get(found[3], "")

        return EXPRESSION.sub(value, text)


@pytest.fixture
def runner(rig: Rig, tmp_path: Path) -> Iterator[Runner]:
    forge = command(tmp_path)
    (forge.cwd / "train.py").write_text("print('hello')")
    with served(server_settings(rig.url, (tmp_path / "store").as_uri())) as url:
        key = Keys(rig.database, actor="user:root").create("ci", Role.SUBMITTER)[1]
        defaults = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        given = {"url": url, "api-key": key, "python": sys.executable}
        given |= {"command": "python train.py --name 'a b'", "options": "--name 'a job' --cpus 1"}
        given |= {"options": f"{given['options']} --max-failures 0 --no-install"}
        runner = Runner(forge, {**defaults, **given})
        assert runner.run(INSTALL)[0] == 0
        yield runner


PYTHON3 = """#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@"' > "$3/bin/python"
chmod +x "$3/bin/python"
"""


def test_what_is_installed_comes_from_the_server_or_is_named(runner: Runner) -> None:
    programs = runner.command.cwd.parent / "bin"
    programs.mkdir()
    (programs / "python3").write_text(PYTHON3)
    (programs / "python3").chmod(0o755)
    runner.command.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    runner.inputs["python"] = ""
    code, said = runner.run(INSTALL)
    assert code == 0, said
    *words, wheel, uv = said.split()
    assert (words, uv) == (["-m", "pip", "install", "--quiet"], "uv")
    assert "forge_client/main.py" in ZipFile(wheel).namelist()
    assert Path(runner.outputs["install"]["python"]).is_file()
    runner.inputs["package"] = "./forge.whl"
    assert runner.run(INSTALL)[1].split() == [*words, "./forge.whl", "uv"]
    # Nothing is looked for in an index.
    runner.inputs |= {"package": "", "url": f"{runner.inputs['url']}/elsewhere"}
    code, said = runner.run(INSTALL)
    assert code == 1
    assert "::error title=Forge::the server has no package; the input package names one" in said


def submitted(runner: Runner) -> int:
    code, said = runner.run(SUBMIT)
    assert code == 0, said
    assert "::notice title=Forge job" in said
    return int(runner.outputs["submit"]["job-id"])


def end(rig: Rig, reason: Reason, **changes: Any) -> None:  # noqa: ANN401  fields of all types
    rig.finish(rig.worker().claim_one(), reason, **changes)


def test_a_step_submits_follows_and_succeeds_with_the_job(runner: Runner, rig: Rig) -> None:
    # Of the job that sets up the step.
    runner.command.env["FORGE_OUTPUT"] = "jsonl"
    job_id = submitted(runner)
    assert runner.outputs["submit"] == {"job-id": str(job_id)}
    job = rig.jobs.job(job_id)
    assert (job["name"], job["owner"]) == ("a job", "ci")
    assert job["spec"]["command"] == ["python", "train.py", "--name", "a b"]
    end(rig, Reason.SUCCEEDED, exit_code=0)
    code, said = runner.run(FOLLOW)
    assert code == 0, said
    assert runner.outputs["follow"] == {"state": "succeeded", "exit-code": "0"}
    # Nothing that the job prints is a command to the runner.
    assert re.match(r"::group::.*\n::stop-commands::(\w+)\n(?s:.*)::\1::\n::endgroup::\n", said)


def test_a_step_fails_with_the_job_s_own_code(runner: Runner, rig: Rig) -> None:
    submitted(runner)
    end(rig, Reason.EXIT_CODE, exit_code=3, detail="boom 100%\nmore")
    code, said = runner.run(FOLLOW)
    assert code == 3
    assert "::error title=Forge::job 1 failed: boom 100%25\n" in said
    assert runner.outputs["follow"] == {"state": "failed", "exit-code": "3"}


def test_a_cancelled_workflow_cancels_the_job(runner: Runner, rig: Rig) -> None:
    job_id = submitted(runner)
    with runner.started(FOLLOW) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("::group::")
        assert process.stdout.readline().startswith("::stop-commands::")
        # The runner signals one process, and kills it a few seconds later.
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert rig.state(job_id) == "cancelled"
    assert runner.outputs["follow"] == {"state": "cancelled", "exit-code": ""}
    # The last step finds it cancelled.
    runner.run(CANCEL)
    assert rig.state(job_id) == "cancelled"
    assert runner.outputs["cancel"] == runner.outputs["follow"]
    assert STEPS[CANCEL]["if"] == "cancelled() && steps.submit.outputs.job-id"


# A `forge submit` that is answered when it is told so.
SLOW = """#!/bin/sh
[ "$1" = submit ] || exec "{forge}" "$@"
echo submitting >&2
cat answer
"""


def test_a_workflow_that_is_cancelled_as_it_submits_cancels_the_job(
    runner: Runner, rig: Rig
) -> None:
    job_id = submitted(runner)
    programs = runner.command.cwd.parent / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    (programs / "forge").write_text(SLOW.format(forge=FORGE))
    (programs / "forge").chmod(0o755)
    os.mkfifo(runner.command.cwd / "answer")
    runner.outputs["install"]["python"] = str(programs / "python")
    with runner.started(SUBMIT) as process:
        assert process.stdout is not None
        assert "submitting\n" in process.stdout
        process.send_signal(signal.SIGTERM)
        # The time is up, and it was not submitted.
        process.send_signal(signal.SIGALRM)
        assert "the job was not submitted: the workflow was cancelled" in process.stdout.read()
        assert process.wait(timeout=60) == 130
    assert runner.outputs["submit"] == {}
    with runner.started(SUBMIT) as process:
        assert process.stdout is not None
        assert "submitting\n" in process.stdout
        process.send_signal(signal.SIGTERM)
        (runner.command.cwd / "answer").write_text(f'{{"job_id": {job_id}}}')
        assert process.wait(timeout=60) == 130
    assert runner.outputs["submit"] == {
        "job-id": str(job_id), "state": "cancelled", "exit-code": "",
    }  # fmt: skip
    assert rig.state(job_id) == "cancelled"


REFUSED = {
    "--gpus one": "the job was not submitted: --gpus: write a whole number",
    "--priority 1001": "the job was not submitted: --priority: must be at most 1000",
    "--name 'a": "the input options cannot be split into words: No closing quotation",
    "--wait": "options cannot have --wait: the input follow is for that",
    "--dry-run": "options cannot have --dry-run",
    "-ojson": "options cannot have -ojson",
    "--output=json": "options cannot have --output",
    "--cpus 1 -- true": "options cannot have --: the input command is for that",
}


def test_a_job_that_cannot_be_submitted_fails_the_step(runner: Runner, rig: Rig) -> None:
    runner.inputs["command"] = "python train.py | tee log"
    code, said = runner.run(SUBMIT)
    assert code == 2, said
    assert "the job was not submitted: command: no shell would read '|'" in said
    assert "for one, write: bash -c 'python train.py | tee log'" in said
    runner.inputs["command"] = "python train.py"
    for options, why in REFUSED.items():
        runner.inputs["options"] = options
        code, said = runner.run(SUBMIT)
        assert code in {2, 3}, said
        assert f"::error title=Forge::{why}" in said
        assert runner.outputs["submit"] == {}
    assert rig.count("job") == 0
