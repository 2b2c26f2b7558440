"""Optuna's samplers and pruners by name, and those of a module of the user's own."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import optuna
from numpy.random import SeedSequence
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from forge_client.errors import InvalidInput
from forge_client.project.matrix import Scalar
from forge_client.search.plan import Plan, setting

# What a short name stands for where Optuna's own is longer.
SHORT = {"halving": "successivehalving", "none": "nop"}


def sampler(plan: Plan, seed: int | None = None) -> BaseSampler:
    """Return a sampler as the plan names it, with this seed unless the plan's is needed."""
    made, options = _read(plan.sampler, optuna.samplers, "Sampler", "--sampler")
    if plan.is_grid:
        options["search_space"] = plan.choices
    known = _parameters(made)
    if "seed" in known and "seed" in options:
        # Each trial would have the same one, and so the same point.
        raise InvalidInput(
            "--sampler: the seed is an option of its own", f"--seed {options['seed']}"
        )
    if "seed" in known and plan.seed is not None:
        options["seed"] = plan.seed if _is_sequence(made) else seed
    if "constant_liar" in known:
        # Several trials run at once: without it, they would be much alike.
        options.setdefault("constant_liar", True)
    instance: BaseSampler = _made(made, options, "--sampler", BaseSampler)
    return instance


def pruner(plan: Plan) -> BasePruner:
    """Return the pruner, one that stops nothing by default."""
    made, options = _read(plan.pruner or "none", optuna.pruners, "Pruner", "--pruner")
    instance: BasePruner = _made(made, options, "--pruner", BasePruner)
    return instance


def check_names(plan: Plan) -> None:
    """Check the names and arguments of the sampler and the pruner.

    Raises:
        ClientError: Optuna has none of this name, or it takes no such argument.
    """
    sampler(plan), pruner(plan)


def _is_sequence(made: Any) -> bool:  # noqa: ANN401 - a class or a function
    """Whether the seed orders all points of a search: a trial takes the one of its number."""
    ordered = (optuna.samplers.QMCSampler, optuna.samplers.GridSampler)
    return inspect.isclass(made) and issubclass(made, ordered)


def _read(text: str, module: ModuleType, kind: str, option: str) -> tuple[Any, dict[str, Any]]:
    """Return the class or function that an option names, and the arguments behind its name."""
    name, *rest = text.split(",")
    options: Mapping[str, Scalar] = {
        key: setting(value) for key, _, value in (text.partition("=") for text in rest)
    }
    return (_own(name, option) if ":" in name else _theirs(name, module, kind, option)), {**options}


def _theirs(name: str, module: ModuleType, kind: str, option: str) -> Any:  # noqa: ANN401 - any class
    kinds = {
        each.removesuffix(kind).lower(): each
        for each in vars(module)
        if each.endswith(kind) and not each.startswith(("Base", "_"))
    }
    short_name = name.lower().replace("_", "").replace("-", "")
    if (known := kinds.get(SHORT.get(short_name, short_name))) is None:
        raise InvalidInput(
            f"{option} {name}: Optuna has no such {kind.lower()}",
            f"choose one of {', '.join(sorted(kinds))}; or name your own, module:Class",
        )
    return getattr(module, known)


def _own(name: str, option: str) -> Any:  # noqa: ANN401 - whatever it names
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{option} {name}: {error}", "it must be importable here") from error


def _parameters(made: Any) -> Mapping[str, inspect.Parameter]:  # noqa: ANN401 - as above
    return inspect.signature(made).parameters


def _made(made: Any, options: dict[str, Any], option: str, kind: type) -> Any:  # noqa: ANN401 - as above
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            built = made(**options)
    except (TypeError, ValueError, ImportError) as error:
        raise InvalidInput(f"{option}: {error}", f"see Optuna's {made.__name__}") from error
    if not isinstance(built, kind):
        raise InvalidInput(
            f"{option}: {made.__name__} is no {kind.__name__}", "name a class of Optuna's"
        )
    return built


def sampler_of(plan: Plan) -> BaseSampler:
    """Return the sampler of a plan's study."""
    return sampler(plan) if plan.seed is None else SamplerPerTrial(plan, plan.seed)


class SamplerPerTrial(BaseSampler):
    """Has each trial's point chosen by a sampler with a seed of the trial's own.

    A point then depends on the trial's number and on earlier trials, and not on how often the
    search was interrupted.
    """

    def __init__(self, plan: Plan, seed: int) -> None:
        self._plan = plan
        self._seed = seed
        self._samplers: dict[int, BaseSampler] = {}

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Pass it on, as each of these methods does."""
        self._of(trial).before_trial(study, trial)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that are chosen together."""
        return self._of(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Choose these parameters."""
        return self._of(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:  # noqa: ANN401 - of any type
        """Choose one of the others."""
        return self._of(trial).sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Pass it on, and forget the trial's sampler."""
        try:
            self._of(trial).after_trial(study, trial, state, values)
        finally:
            self._samplers.pop(trial.number, None)

    def _of(self, trial: FrozenTrial) -> BaseSampler:
        number = trial.number
        if number not in self._samplers:
            # Not a sum: trial 1 of seed 7 would have the point of trial 0 of seed 8.
            (seed,) = SeedSequence([self._seed, number]).generate_state(1)
            self._samplers[number] = sampler(self._plan, int(seed))
        return self._samplers[number]
