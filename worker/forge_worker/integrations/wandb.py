"""Weights & Biases: `run = init(project="digits")` instead of `wandb.init(project="digits")`."""

from __future__ import annotations

from typing import Any

from forge_worker.integrations import group, tracked


def init(**given: Any) -> Any:  # noqa: ANN401 - wandb's own
    """Call `wandb.init` for the job's run, which every attempt resumes, and return the run.

    The id, name, group and parameters are the job's unless they are given. On other ranks than 0,
    the run records nothing.
    """
    import wandb  # type: ignore[import-not-found,unused-ignore]

    if group.rank() != 0:
        return wandb.init(mode="disabled")
    name = tracked.name()
    ours = {"id": name, "resume": "allow", "name": name, "group": tracked.group()} if name else {}
    run = wandb.init(**{**ours, "config": tracked.parameters(), **given})
    tracked.link("wandb", run.url)
    return run
