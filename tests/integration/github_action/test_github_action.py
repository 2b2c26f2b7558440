"""The GitHub Action's steps, run as GitHub runs them, against a real server."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from forge_schema.access.api_keys import Keys
from forge_schema.model.states import Reason, Role
from support.client.command import command
from support.http.server import served, server_settings
from support.waiting import eventually

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


def submitted(runner: Runner) -> int:
    code, said = runner.run(SUBMIT)
    assert code == 0, said
    assert "::notice title=Forge job" in said
    return int(runner.outputs["submit"]["job-id"])


def end(rig: Rig, reason: Reason, **changes: Any) -> None:  # noqa: ANN401  fields of all types
    rig.finish(rig.worker().claim_one(), reason, **changes)


def test_a_step_submits_follows_and_succeeds_with_the_job(runner: Runner, rig: Rig) -> None:
    job_id = submitted(runner)
    job = rig.jobs.job(job_id)
    assert (job["name"], job["owner"]) == ("a job", "ci")
    assert job["spec"]["command"] == ["python", "train.py", "--name", "a b"]
    end(rig, Reason.SUCCEEDED, exit_code=0)
    code, said = runner.run(FOLLOW)
    assert code == 0, said
    assert runner.outputs["follow"] == {"state": "succeeded", "exit-code": "0"}
    # Nothing that the job prints is a command to the runner.
    word = re.search(r"::stop-commands::(\w+)\n", said)
    assert word
    assert said.endswith(f"::{word[1]}::\n")


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
        assert process.stdout.readline().startswith("::stop-commands::")
        # The runner signals one process, and kills it a few seconds later.
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    eventually(lambda: rig.state(job_id).terminal)
    assert rig.state(job_id) == "cancelled"
    # The last step finds it cancelled.
    runner.run(CANCEL)
    assert rig.state(job_id) == "cancelled"
    assert STEPS[CANCEL]["if"] == "cancelled() && steps.submit.outputs.job-id"


def test_a_job_that_cannot_be_submitted_fails_the_step(runner: Runner, rig: Rig) -> None:
    runner.inputs["options"] = "--gpus one"
    code, said = runner.run(SUBMIT)
    assert code == 2
    assert "::error title=Forge::the job was not submitted" in said
    assert rig.count("job") == 0
