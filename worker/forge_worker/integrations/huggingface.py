"""Hugging Face's Trainer: `train(trainer)` instead of `trainer.train()`."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]
from transformers.trainer_utils import get_last_checkpoint  # type: ignore[import-not-found,unused-ignore]

from forge_worker import job
from forge_worker.integrations import group


def train(trainer: Any, **given: Any) -> Any:  # noqa: ANN401 - Trainer's own
    """Call `trainer.train` with the newest checkpoint, and return what it returns.

    In a job, the checkpoints are in the job's checkpoint folder. `save_strategy` and `save_steps`
    decide when one is saved; each is committed. If the job is asked to stop, one is saved after the
    current step, and the process exits with 143.

    Raises:
        ValueError: the checkpoints could not be resumed from, since they have only the model.
    """
    if not any(isinstance(each, ForgeCallback) for each in trainer.callback_handler.callbacks):
        callback = ForgeCallback()
        callback.on_init_end(trainer.args)
        trainer.add_callback(callback)
    return trainer.train(resume_from_checkpoint=newest(trainer.args), **given)


def newest(args: Any) -> str | None:  # noqa: ANN401 - Trainer's own
    """Return the newest checkpoint of a trainer with these arguments."""
    folder = args.output_dir
    checkpoint = get_last_checkpoint(folder) if os.path.isdir(folder) else None  # noqa: PTH112 - as theirs
    return None if checkpoint is None else str(checkpoint)


class ForgeCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Commits each checkpoint, reports, and stops the training when the job is asked to stop.

    To resume, call `trainer.train(resume_from_checkpoint=newest(trainer.args))`.
    """

    def __init__(self) -> None:
        self._leaves = False

    def on_init_end(self, args: Any, *_: Any, **__: Any) -> None:  # noqa: ANN401 - Trainer's own
        """Have the checkpoints in the job's folder.

        Raises:
            ValueError: they could not be resumed from, since they would have only the model.
        """
        if args.save_only_model:
            raise ValueError("save_only_model=True saves nothing to resume from; leave it out")
        if os.environ.get("FORGE_CHECKPOINT_DIR"):
            args.output_dir = str(job.checkpoint_dir())

    def on_train_begin(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - Trainer's own
        """Survive SIGTERM."""
        group.listen()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Save and stop, on all ranks in the same step."""
        if group.agreed(asked=group.asked()) and state.global_step < state.max_steps:
            self._leaves = control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Commit, once all ranks have written their files."""
        group.agreed()
        if group.first_here():
            job.save_now(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ANN401, ARG002 - as above
        """Report what the trainer logs; on other machines the progress, watched for stalls."""
        metrics = (logs or {}) if state.is_world_process_zero else {}
        values = {k: v for k, v in metrics.items() if k not in ("step", "total")}
        if group.first_here():
            job.report(step=state.global_step, total=state.max_steps, **values)

    def on_train_end(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - as above
        """Leave: what the program does after the training would be done too early."""
        if self._leaves:
            group.leave()
