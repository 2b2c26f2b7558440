"""Hydra's launcher of jobs: `python train.py -m lr=0.1,0.2 hydra/launcher=forge`.

Hydra finds it by its place. A job needs hydra-core, and nothing of Forge.
"""

import logging
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from forge_client.sdk.spec import NamedSpec
from hydra import version
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.plugins.launcher import Launcher
from omegaconf import OmegaConf, open_dict

log = logging.getLogger(__name__)


class ForgeLauncher(Launcher):  # type: ignore[misc,unused-ignore]
    """Submits a job for each point of a multirun, and waits for all of them.

    Args:
        folder: the folder that the jobs are given; else the current one.
        pickled: whether to load what a job returns if it is no plain number, text or list.
        **fields: fields of the jobs, such as `gpus`; those that are None are left out.
    """

    def __init__(self, folder: str | None = None, *, pickled: bool = False, **fields: Any) -> None:
        self._folder = folder
        self._pickled = pickled
        given = OmegaConf.to_container(OmegaConf.create(fields))
        self._fields = {name: value for name, value in given.items() if value is not None}

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        """Keep what Hydra gives its launcher."""
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[Any]:
        """Run the points as jobs; return what each returned or raised, in their order.

        Their files are in the folder of the multirun, as after a run here.
        """
        # Hydra reads this module at each start of each program.
        from forge_client.sdk.functions import job

        setup_globals()
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        points = [self._point(*each) for each in enumerate(job_overrides, initial_job_idx)]
        folder = self._folder or self._config.hydra.runtime.cwd
        function = job(folder=folder, pickled=self._pickled, **self._fields)(
            _called(self._task, str(version.getbase()), self._config.hydra.job.name)
        )
        named = map(_parameters, job_overrides)
        calls = [{**each, "hydra_point": point} for each, point in zip(named, points, strict=True)]
        jobs = function.map(calls)
        for submitted, overrides in zip(jobs, job_overrides, strict=True):
            log.info("job %d: %s", submitted.id, " ".join(filter_overrides(overrides)))
        return [self._end(*each) for each in zip(jobs, job_overrides, points, strict=True)]

    def _point(self, number: int, overrides: Sequence[str]) -> Any:
        point = self._context.config_loader.load_sweep_config(self._config, [*overrides])
        with open_dict(point):
            point.hydra.job.id = point.hydra.job.num = number
            # Other plugins have classes for theirs, which the job may lack.
            for part in ("launcher", "sweeper"):
                point.hydra[part] = OmegaConf.to_container(point.hydra[part], enum_to_str=True)
        return point

    def _end(self, submitted: Any, overrides: Sequence[str], point: Any) -> Any:
        from forge_client.errors import Unreachable

        folder = Path(str(self._config.hydra.sweep.dir))
        cfg, hydra_cfg = deepcopy(point), deepcopy(point)
        with open_dict(cfg):
            del cfg["hydra"]
        ended = JobReturn([*overrides], cfg, hydra_cfg, str(folder), point.hydra.job.name)
        try:
            ended.return_value, ended.status = submitted.result(), JobStatus.COMPLETED
            submitted.download(folder)
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the program raised
            ended.return_value, ended.status = error, JobStatus.FAILED
        log.info("job %d: %s", submitted.id, submitted.state)
        return ended


def _parameters(overrides: Sequence[str]) -> dict[str, Any]:
    """Return what a point sets, for the table of runs."""
    parsed = OverridesParser.create().parse_overrides([*filter_overrides(overrides)])
    return {re.sub(r"\W", "_", each.key_or_group): each.value() for each in parsed}


def _called(task: Callable[[Any], Any], base: str, name: str) -> Callable[..., Any]:
    """Return what a job calls: the program's function with the config of its point.

    As a nested function it travels as it is, for this module is not in the job.
    """

    def run(hydra_point: Any, **_parameters: object) -> Any:
        import os

        from hydra import version
        from hydra._internal.callbacks import Callbacks
        from hydra.core.utils import JobRuntime, run_job, setup_globals
        from hydra.types import HydraContext
        from omegaconf import open_dict

        version.setbase(base)
        setup_globals()
        JobRuntime.instance().set("name", name)
        with open_dict(hydra_point):
            hydra_point.hydra.runtime.cwd = os.getcwd()  # noqa: PTH109 - as Hydra has it
            hydra_point.hydra.sweep.dir = os.environ["FORGE_OUTPUT_DIR"]
        ended = run_job(
            task_function=task,
            config=hydra_point,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=HydraContext(config_loader=None, callbacks=Callbacks(hydra_point)),
        )
        value = ended.return_value  # or what the program raised
        value = value.item() if hasattr(value, "item") else value
        return list(value) if isinstance(value, tuple) else value

    run.__name__ = run.__qualname__ = name
    return run


ConfigStore.instance().store(
    group="hydra/launcher",
    name="forge",
    node={
        "_target_": f"{ForgeLauncher.__module__}.{ForgeLauncher.__qualname__}",
        "folder": None,
        "pickled": False,
        # Not a key to find the same jobs by: the time of the multirun is in what they are given.
        **dict.fromkeys(NamedSpec.__annotations__.keys() - {"idempotency_key"}),
    },
    provider="forge",
)
