"""Training on two processes with `forge_worker.integrations`, killed, preempted and finished.

First one rank dies, then both, then the job is preempted while one rank is in the middle of a step.
As in test_frameworks.py, FORGE_TEST_TORCH_BIN names the environment. The processes are torchrun's,
with Gloo: both on one machine, or one on each member of a gang. Trainer and Lightning have the
callback here, and their one line in test_integrations.py.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.spec import Resources
from support.waiting import eventually
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKER = Path(__file__).parents[3] / "worker"
BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")
# Gloo would ask for the address of the machine's name.
PATH = {"PATH": f"{BIN}:{os.environ['PATH']}", "GLOO_SOCKET_IFNAME": "lo"}
STEPS = 30
# The steps in which the attempts end, and the last one that was saved before the second end.
DIES, BOTH_DIE, ASKED = 8, 13, 17
LAST_SAVED = 10

pytestmark = pytest.mark.skipif(not BIN, reason="FORGE_TEST_TORCH_BIN is not set")

DISTURBED = f"""
import os, signal, threading, torch
from forge_worker import job
rank, attempt = int(os.environ["RANK"]), os.environ.get("FORGE_ATTEMPT")
each = {{"devices": int(os.environ["LOCAL_WORLD_SIZE"]),
        "num_nodes": int(os.environ["GROUP_WORLD_SIZE"])}}
torch.manual_seed(7 + rank)

def say(step, loss):
    # One call each, so that two processes do not mix their lines.
    os.write(1, f"attempt {{attempt}} rank {{rank}} step {{step}} loss {{loss}}\\n".encode())

def disturb(step):
    dying = {{"1": ({DIES}, (1,)), "2": ({BOTH_DIE}, (0, 1))}}.get(attempt, (0, ()))
    if step == dying[0] and rank in dying[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    if (attempt, rank, step) == ("3", 1, {ASKED}):
        os.write(1, b"waiting\\n")
        while not job.should_stop():
            threading.Event().wait(0.05)
"""
LOOP = """
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
{prepare}
for step in {steps}:
    numbers = torch.randn(8, 4)
    loss = nn.functional.mse_loss(model(numbers), numbers.sum(1, keepdim=True))
    optimizer.zero_grad()
    {backward}
    disturb(step)
    optimizer.step()
    say(step, loss.item())
"""
PYTORCH = LOOP.format(
    prepare="""
from torch import distributed
from forge_worker.integrations.pytorch import steps
distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
""",
    steps="steps(30, model, optimizer, save_every=5)",
    backward="loss.backward()",
)
ACCELERATE = LOOP.format(
    prepare="""
from accelerate import Accelerator
from forge_worker.integrations.accelerate import steps
accelerator = Accelerator(cpu=True)
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-2))
""",
    steps="steps(30, accelerator, save_every=5)",
    backward="accelerator.backward(loss)",
)
HUGGING_FACE = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from forge_worker.integrations.huggingface import ForgeCallback, newest

class Disturbs(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **_):
        disturb(state.global_step + 1)
    def on_log(self, args, state, control, logs, **_):
        if "loss" in logs:
            say(state.global_step, logs["loss"])

torch.manual_seed(7)
shape = GPT2Config(vocab_size=64, n_positions=16, n_embd=8, n_layer=1, n_head=1)
rows = [{"input_ids": one, "labels": one} for one in torch.randint(0, 64, (480, 16))]
settings = TrainingArguments(max_steps=30, save_steps=5, logging_steps=1, use_cpu=True,
    ddp_backend="gloo", save_total_limit=2, report_to="none", disable_tqdm=True)
trainer = Trainer(GPT2LMHeadModel(shape), settings, train_dataset=rows,
    callbacks=[Disturbs(), ForgeCallback()])
trainer.train(resume_from_checkpoint=newest(trainer.args))
"""
# An epoch has one batch of each rank: within an epoch, a plain DataLoader is not resumed.
LIGHTNING = """
import lightning
from torch import nn
from forge_worker.integrations.lightning import ForgeCallback, newest

class Adder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    def training_step(self, batch, number):
        loss = nn.functional.mse_loss(self.layers(batch), batch.sum(1, keepdim=True))
        self.log("loss", loss)
        disturb(self.current_epoch + 1)
        return loss
    def on_train_epoch_end(self):
        say(self.current_epoch + 1, self.trainer.callback_metrics["loss"].item())
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)

numbers = torch.randn(16, 4, generator=torch.Generator().manual_seed(7))
rows = torch.utils.data.DataLoader(numbers, batch_size=8, shuffle=True)
trainer = lightning.Trainer(max_epochs=30, enable_progress_bar=False, accelerator="cpu",
    strategy="ddp", **each, logger=False, enable_checkpointing=False, enable_model_summary=False,
    log_every_n_steps=1, callbacks=[ForgeCallback(every_n_epochs=5)])
trainer.fit(Adder(), rows, ckpt_path=newest())
"""
PROGRAMS = {
    "pytorch": PYTORCH,
    "accelerate": ACCELERATE,
    "huggingface": HUGGING_FACE,
    "lightning": LIGHTNING,
}


def curves(said: str) -> dict[tuple[int, int], float]:
    """Return the loss of each rank and step; of one that was trained again, the last."""
    found = re.findall(r"rank (\d) step (\d+) loss ([\d.e-]+)", said)
    return {(int(rank), int(step)): float(loss) for rank, step, loss in found}


# PyTorch sometimes aborts a process of Gloo that exits.
ENDS = """
import os, sys
sys.stdout.flush()
os._exit(0)
"""


def undisturbed(project: Path) -> dict[tuple[int, int], float]:
    done = subprocess.run(
        [f"{BIN}/torchrun", "--standalone", "--nproc-per-node=2", "train.py"],
        cwd=project,
        env={**os.environ, **PATH, "PYTHONPATH": str(WORKER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return curves(done.stdout)


def spans(said: str, attempt: int) -> list[tuple[int, int]]:
    """Return the first and the last step of an attempt, by rank."""
    found = re.findall(rf"attempt {attempt} rank (\d) step (\d+) ", said)
    steps = [[int(step) for rank, step in found if rank == one] for one in "01"]
    return [(min(one), max(one)) for one in steps]


def submit(made: Bed, project: Path, nodes: int) -> int:
    """Submit the program, of which two processes train on one machine or on two."""
    alone: tuple[str, ...] = ("torchrun", "--standalone", "--nproc-per-node=2")
    several: Mapping[str, object] = {"nodes": nodes, "launcher": "torchrun"}
    return made.submit(
        *(alone if nodes == 1 else ()),
        "train.py",
        folder=project,
        max_failures=2,
        resources=Resources(cpus=1, memory_mb=4096, disk_mb=1000),
        **(several if nodes > 1 else {}),
    )


def reasons(made: Bed, job: int) -> list[set[str]]:
    """Return the reasons of each attempt's members, but for those that ended with another."""
    rows = [(row["attempt"], row["reason"]) for row in made.jobs.attempts(job)]
    return [{why for one, why in rows if one == number} - {"run_ended"} for number in range(1, 5)]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("framework", list(PROGRAMS))
def test_losses_after_kills_and_a_preemption_are_those_of_an_undisturbed_run(
    tmp_path: Path, database_url: str, framework: str, nodes: int
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(DISTURBED + PROGRAMS[framework] + ENDS)
    expected = undisturbed(project)
    assert len(expected) == 2 * STEPS
    with bed("process", tmp_path, database_url, environment=PATH) as made:
        for number in range(nodes):
            made.worker(f"m{number}")
        job = submit(made, project, nodes)
        eventually(lambda: b"waiting" in made.log(job) or made.job(job)["finished_at"], 300)
        assert made.queue.preempt(job), made.log(job)[-2000:].decode()
        made.succeeds(job, 300)
        said = made.log(job).decode()
        assert reasons(made, job) == [{"exit_code"}, {"exit_code"}, {"preempted"}, {"succeeded"}]
        # Both ranks stop in the step in which one of them was asked.
        assert spans(said, 3) == [(LAST_SAVED + 1, ASKED)] * 2
        assert spans(said, 4) == [(ASKED + 1, STEPS)] * 2
        assert curves(said) == pytest.approx(expected, rel=1e-5)
        # Of each machine, since its worker watches it.
        for rank in range(nodes):
            reported = [row["values"] for row in made.jobs.metrics(job, rank=rank, attempt=4)]
            steps = [line["step"] for line in reported if "train_loss" not in line]
            assert steps[-1:] == [STEPS] if rank else steps == list(range(ASKED + 1, STEPS + 1))
        committed = [row["step"] for row in made.jobs.checkpoints(job)]
        assert {ASKED, STEPS} <= set(committed)
        assert len(committed) == len(set(committed))
