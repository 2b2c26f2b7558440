"""Training with `forge_worker.integrations`: killed, then asked to stop, then finished.

The losses must be those of an undisturbed run. As in test_frameworks.py, FORGE_TEST_TORCH_BIN names
the environment. No worker takes part: what it does with a commit is tested without a framework.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

WORKER = Path(__file__).parents[3] / "worker"
BIN = os.environ.get("FORGE_TEST_TORCH_BIN", "")
KILLED_AT, ASKED_AT, STEPS = 8, 17, 30

pytestmark = pytest.mark.skipif(not BIN, reason="FORGE_TEST_TORCH_BIN is not set")

DIES = """
import os, torch
torch.manual_seed(7)
def perhaps_die(step):
    if str(step) == os.environ.get("AT"):
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
"""
LOOP = """
from torch import nn
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
{prepare}
for step in {steps}:
    numbers = torch.randn(8, 4)
    loss = nn.functional.mse_loss(model(numbers), numbers.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item(), flush=True)
    perhaps_die(step)
"""
PYTORCH = LOOP.format(
    prepare="from forge_worker.integrations.pytorch import steps",
    steps="steps(30, model, optimizer, save_every=5)",
)
ACCELERATE = LOOP.format(
    prepare="""
from accelerate import Accelerator
from forge_worker.integrations.accelerate import steps
accelerator = Accelerator(cpu=True)
model, optimizer = accelerator.prepare(model, optimizer)
""",
    steps="steps(30, accelerator, save_every=5)",
)
HUGGING_FACE = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from forge_worker.integrations.huggingface import train

class Dies(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        perhaps_die(state.global_step)

shape = GPT2Config(vocab_size=64, n_positions=16, n_embd=8, n_layer=1, n_head=1)
rows = [{"input_ids": one, "labels": one} for one in torch.randint(0, 64, (240, 16))]
settings = TrainingArguments(max_steps=30, save_steps=5, logging_steps=1, use_cpu=True,
    save_total_limit=2, report_to="none", disable_tqdm=True)
trainer = Trainer(GPT2LMHeadModel(shape), settings, train_dataset=rows, callbacks=[Dies()])
train(trainer)
for entry in trainer.state.log_history:
    if "loss" in entry:
        print("step", entry["step"], entry["loss"])
"""
# An epoch has one batch: within an epoch, a plain DataLoader is not resumed.
LIGHTNING = """
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from forge_worker.integrations.lightning import fit

class Adder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def training_step(self, batch, number):
        loss = nn.functional.mse_loss(self.layer(batch), batch.sum(1, keepdim=True))
        self.log("loss", loss)
        return loss
    def on_train_epoch_end(self):
        epoch, loss = self.current_epoch + 1, self.trainer.callback_metrics["loss"]
        print("step", epoch, loss.item(), flush=True)
        perhaps_die(epoch)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)

rows = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=8, shuffle=True)
best = ModelCheckpoint(os.environ["FORGE_CHECKPOINT_DIR"] + "/best", monitor="loss", save_last=True)
fit(lightning.Trainer(max_epochs=30, enable_progress_bar=False, accelerator="cpu", logger=False,
    callbacks=[best], enable_model_summary=False, log_every_n_steps=1), Adder(), rows)
"""


def train(folder: Path, program: str, at: int = 0, number: int = 0) -> tuple[int, dict[int, float]]:
    """Run a program as a job would; return its exit code and the losses that it printed."""
    places = {
        "FORGE_CHECKPOINT_DIR": folder / "checkpoint",
        "FORGE_CHECKPOINT_FILE": folder / "commit",
        "FORGE_METRICS_FILE": folder / "metrics",
    }
    folder.mkdir(exist_ok=True)
    given = {"AT": str(at), "SIGNAL": str(int(number)), "PYTHONPATH": str(WORKER)}
    done = subprocess.run(
        [f"{BIN}/python", "-W", "ignore", "-c", DIES + program],
        cwd=folder,
        env={**os.environ, **given, **{name: str(place) for name, place in places.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Error" not in done.stderr, done.stderr
    found = re.findall(r"^step (\d+) ([\d.e-]+)$", done.stdout, re.MULTILINE)
    return done.returncode, {int(step): float(loss) for step, loss in found}


@pytest.mark.parametrize(
    "program",
    [PYTORCH, ACCELERATE, HUGGING_FACE, LIGHTNING],
    ids=["pytorch", "accelerate", "huggingface", "lightning"],
)
def test_losses_after_a_kill_and_a_preemption_are_those_of_an_undisturbed_run(
    tmp_path: Path, program: str
) -> None:
    code, expected = train(tmp_path / "alone", program)
    assert code == 0
    assert list(expected) == list(range(1, STEPS + 1))
    folder = tmp_path / "disturbed"
    code, first = train(folder, program, KILLED_AT, signal.SIGKILL)
    assert code == -signal.SIGKILL
    # Each attempt has a folder of its own.
    folder = folder.rename(tmp_path / "elsewhere")
    code, second = train(folder, program, ASKED_AT, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    # The step in which it was asked, or the next one.
    assert ASKED_AT <= int((folder / "commit").read_text()) <= ASKED_AT + 1
    folder = folder.rename(tmp_path / "last")
    code, third = train(folder, program)
    assert code == 0
    # Lightning's own callback goes on with its files.
    assert not list(folder.rglob("last-v*"))
    assert {**first, **second, **third} == pytest.approx(expected, rel=1e-5)
    assert '"total": 30' in (folder / "metrics").read_text()
