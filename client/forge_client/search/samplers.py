"""The samplers of a search: one for all trials, or one for each."""

from collections.abc import Sequence
from typing import Any

from numpy.random import SeedSequence
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from forge_client.search.named import sampler
from forge_client.search.plan import Plan


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
