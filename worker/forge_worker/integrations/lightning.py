"""Lightning: `fit(trainer, model, data)` instead of `trainer.fit(model, data)`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]

from forge_worker import job
from forge_worker.integrations import group

KEPT = 2


def fit(trainer: Any, model: Any, *data: Any, every_n_epochs: int = 1, **given: Any) -> None:  # noqa: ANN401 - Lightning's own
    """Call `trainer.fit` with the newest checkpoint in the job's checkpoint folder.

    One is saved and committed after every `every_n_epochs` epochs. If the job is asked to stop, one
    is saved after the current batch, and the process exits with 143; a plain DataLoader begins the
    epoch anew then.
    """
    trainer.callbacks.append(ForgeCallback(every_n_epochs))
    trainer.fit(model, *data, ckpt_path=newest(), **given)


def newest() -> str | None:
    """Return the newest checkpoint in the job's checkpoint folder."""
    checkpoint = max(_saved(job.checkpoint_dir()), key=_step, default=None)
    return None if checkpoint is None else str(checkpoint)


class ForgeCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Saves and commits checkpoints, reports, and stops the training when the job is asked to.

    To resume, call `trainer.fit(model, ckpt_path=newest())`.
    """

    def __init__(self, every_n_epochs: int = 1) -> None:
        self._every = every_n_epochs
        self._leaves = False
        self._random: list[Any] = []

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:  # noqa: ANN401, ARG002 - Lightning's own
        """Have each `ModelCheckpoint` know its files again, whose folder has another path now."""
        for saves in trainer.checkpoint_callbacks:
            state = checkpoint.get("callbacks", {}).get(saves.state_key, {})
            old, new = state.get("dirpath"), saves.dirpath
            if old and new and Path(new).is_dir() and not Path(old).exists():
                moved = {key: _moved(value, old, new) for key, value in state.items()}
                checkpoint["callbacks"][saves.state_key] = moved

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 - Lightning's own
        """Survive SIGTERM; Lightning would end at the next batch, without saving."""
        group.listen()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:  # noqa: ANN401 - as above
        """Save and stop, on all ranks after the same batch."""
        if trainer.strategy.reduce_boolean_decision(group.asked(), all=False):
            self._leaves = trainer.should_stop = True
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Report, and save; on other machines report the progress, which is watched for stalls."""
        reported = trainer.callback_metrics if trainer.is_global_zero else {}
        metrics = {k: v for k, v in reported.items() if k not in ("step", "total")}
        if group.first_here():
            total = trainer.max_epochs if (trainer.max_epochs or -1) > 0 else None
            job.report(step=trainer.current_epoch + 1, total=total, **metrics)
        if not self._leaves and (trainer.current_epoch + 1) % self._every == 0:
            self._save(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Leave: what the program does after the training would be done too early."""
        if self._leaves:
            group.leave()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each rank's random numbers, which Lightning does not save."""
        return {"random": self._random}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of the random numbers, if as many processes have saved it."""
        random = state_dict["random"]
        if group.rank() < len(random):
            torch.set_rng_state(random[group.rank()].cpu())

    def _save(self, trainer: Any) -> None:  # noqa: ANN401 - as above
        folder, step = job.checkpoint_dir(), trainer.global_step
        self._random = group.gathered(torch.get_rng_state())
        trainer.save_checkpoint(str(folder / f"step-{step}.ckpt"))
        trainer.strategy.barrier()
        if group.first_here():
            job.save_now(step)
            for old in sorted(_saved(folder), key=_step)[:-KEPT]:
                old.unlink()


def _moved(value: Any, old: str, new: str) -> Any:  # noqa: ANN401 - any state
    """Replace a folder in a path, or in paths that are keys."""
    if isinstance(value, dict):
        return {_moved(key, old, new): each for key, each in value.items()}
    inside = isinstance(value, str) and (value == old or value.startswith(f"{old}/"))
    return f"{new}{value[len(old) :]}" if inside else value


def _saved(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if re.fullmatch(r"step-\d+\.ckpt", path.name)]


def _step(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
