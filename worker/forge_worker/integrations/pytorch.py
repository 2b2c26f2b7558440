"""Plain PyTorch: `for step in steps(1000, model, optimizer):`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forge_worker.integrations import group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def steps(
    total: int,
    model: Any,  # noqa: ANN401 - torch's
    optimizer: Any,  # noqa: ANN401 - torch's
    *,
    save_every: int = 100,
    **others: Any,  # noqa: ANN401 - torch's
) -> Iterator[int]:
    """Yield the numbers of the steps that are left, of 1 to `total`.

    The state is restored before the first one, and saved with PyTorch's distributed checkpoints,
    which also serve one process: sharded models (FSDP) are saved in shards, and can be loaded by
    another number of processes. The state of the process's random numbers is part of it.

    Args:
        total: the number of steps.
        model: the module, as it is trained.
        optimizer: its optimizer.
        save_every: how many steps lie between two checkpoints.
        **others: whatever else has `state_dict` and `load_state_dict`, such as a scheduler.
    """
    return group.steps(_Torch(model, optimizer, others), total, save_every)


class _Torch(group.Saver):
    def __init__(self, model: Any, optimizer: Any, others: dict[str, Any]) -> None:  # noqa: ANN401 - as above
        self._model, self._optimizer, self._others = model, optimizer, others
        # Each process has numbers of its own.
        self._random = f"random_{group.rank()}"

    def save(self, folder: Path) -> None:
        from torch.distributed import checkpoint  # type: ignore[import-not-found,unused-ignore]

        checkpoint.save(self._state(), checkpoint_id=str(folder))

    def load(self, folder: Path) -> None:
        import torch  # type: ignore[import-not-found,unused-ignore]
        from torch.distributed import checkpoint
        from torch.distributed.checkpoint.state_dict import set_state_dict  # type: ignore[import-not-found,unused-ignore]

        state = self._state()
        saved = checkpoint.FileSystemReader(folder).read_metadata()
        if self._random not in saved.state_dict_metadata:
            # Fewer processes have saved it.
            del state[self._random]
        checkpoint.load(state, checkpoint_id=str(folder))
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        for name, other in self._others.items():
            other.load_state_dict(state["others"][name])
        if self._random in state:
            torch.set_rng_state(state[self._random])

    def _state(self) -> dict[str, Any]:
        import torch
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self._model, self._optimizer)
        others = {name: other.state_dict() for name, other in self._others.items()}
        return {
            "model": model,
            "optimizer": optimizer,
            "others": others,
            self._random: torch.get_rng_state(),
        }
