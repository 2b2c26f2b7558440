"""A search's study, in a storage of Optuna's."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import optuna
import psycopg
from forge_schema.model.quantities import names_text
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy import create_engine
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.schema import CreateSchema

from forge_client.errors import ClientError, InvalidInput
from forge_client.project.matrix import Scalar
from forge_client.search.lease import StudyLease
from forge_client.search.plan import LIMITS, Plan, Range
from forge_client.search.samplers import pruner, sampler_of

# Beside Forge's own tables: both call one of theirs `alembic_version`.
SCHEMA = "optuna"
PLAN = "forge_plan"
JOB, STOPPED, SPENT = "forge_job", "forge_stopped", "forge_spent"


class Search:
    """A study and the plan that it follows. Every method may be repeated."""

    def __init__(self, study: optuna.Study, plan: Plan) -> None:
        self.study = study
        self.plan = plan
        self._lease = StudyLease(study)
        self._space = _space(plan)
        self._trials: dict[int, Trial] = {}
        study.pruner = pruner(plan)
        study.sampler = sampler_of(plan)

    @classmethod
    def begun(cls, storage: BaseStorage, plan: Plan) -> Self:
        """Create the study of a plan, or continue the one that there is.

        Raises:
            ClientError: there is a study of another owner or with other options, or the storage
                does not answer.
        """
        with reached(FIRST):
            study = optuna.create_study(
                study_name=plan.sweep,
                storage=storage,
                direction="maximize" if plan.maximize else "minimize",
                load_if_exists=True,
            )
            if PLAN not in study.user_attrs:
                study.set_user_attr(PLAN, plan.model_dump(mode="json"))
        search = cls(study, Plan.model_validate(study.user_attrs[PLAN]))
        if search.plan.owner != plan.owner:
            raise InvalidInput(
                f"the study {plan.sweep!r} belongs to {search.plan.owner}",
                hint="choose another --sweep or --idempotency-key",
            )
        if differing := search.plan.differing(plan):
            raise ClientError(
                f"the search {plan.sweep!r} was begun with other options:"
                f" {names_text(differing, len(differing))}",
                hint=f"`forge sweep resume {plan.sweep}` continues it, also with other"
                f" {names_text([*LIMITS.values()], len(LIMITS))}; else choose another"
                " --idempotency-key",
                code="idempotency_conflict",
            )
        return search

    @classmethod
    def known(cls, storage: BaseStorage, sweep: str) -> Self:
        """Return the search that was begun under this name.

        Raises:
            ClientError: there is none.
        """
        try:
            with reached():
                study = optuna.load_study(study_name=sweep, storage=storage)
        except KeyError:
            study = None
        if study is None or PLAN not in study.user_attrs:
            raise ClientError(
                f"there is no search {sweep!r} in this storage",
                hint="pass the --storage with which it was begun, or begin one: `forge sweep run`",
                code="sweep_unknown",
            )
        return cls(study, Plan.model_validate(study.user_attrs[PLAN]))

    def extend(self, limits: Mapping[str, float]) -> None:
        """Change what ends the search, and how many jobs run at once.

        Raises:
            ClientError: as for `hold`, or the search cannot have these limits.
        """
        self.hold()
        self.plan = self.plan.extended(limits)
        with reached():
            self.study.set_user_attr(PLAN, self.plan.model_dump(mode="json"))

    def hold(self) -> None:
        """Keep this process the only one that runs the search.

        Raises:
            ClientError: another process runs it, or the storage does not answer.
        """
        with reached():
            self._lease.hold()

    def release(self) -> None:
        """Let another process run the search."""
        with reached():
            self._lease.release()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials, as they are stored."""
        return self.study.get_trials(deepcopy=False)

    def ask(self) -> Trial:
        """Begin the next trial."""
        trial = self.study.ask()
        self._trials[trial.number] = trial
        return trial

    def trial(self, stored: FrozenTrial) -> Trial:
        """Return a trial that runs, also one that another process began."""
        if stored.number not in self._trials:
            self._trials[stored.number] = Trial(self.study, stored._trial_id)  # noqa: SLF001 - as `ask` does
        return self._trials[stored.number]

    def point(self, trial: Trial) -> dict[str, Scalar]:
        """Return a trial's parameters, chosen now unless they were."""
        return {name: _suggested(trial, name, way) for name, way in self._space.items()}

    def tell(self, trial: Trial, state: TrialState, value: float | None = None) -> None:
        """End a trial; a repeat changes nothing."""
        try:
            self.study.tell(trial, value, state=state, skip_if_finished=True)
        except RuntimeError as error:
            # Some samplers want to stop `optimize` after the last point. The trial has ended.
            if "Study.stop" not in str(error):
                raise
        self._trials.pop(trial.number, None)


LATER = "the jobs continue; `forge sweep resume` resumes it once it is back"
FIRST = "start it, or name another with --storage; no job was submitted"


@contextmanager
def reached(hint: str = LATER) -> Iterator[None]:
    """Turn a failure of the storage into a `ClientError`."""
    try:
        yield
    except (optuna.exceptions.StorageInternalError, DBAPIError, OSError) as error:
        cause = error.__cause__ or error
        raise ClientError(
            f"the study's storage does not answer: {str(cause).splitlines()[0]}",
            hint=hint,
            code="database_unreachable",
        ) from error


@contextmanager
def closing(storage: RDBStorage) -> Iterator[RDBStorage]:
    """Close the storage's connections afterwards, which nothing else does."""
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def opened(url: str) -> RDBStorage:
    """Open a storage by its URL, any that SQLAlchemy takes.

    Raises:
        ClientError: it is none, or does not answer.
    """
    try:
        with reached(FIRST):
            return RDBStorage(url)
    except (ArgumentError, ImportError, ValueError) as error:
        raise InvalidInput(
            f"this is not the URL of a storage: {error}",
            hint="write sqlite:////path/studies.db or postgresql+psycopg://…",
        ) from error


def beside_the_queue(database_url: str) -> RDBStorage:
    """Open the storage in the queue's own database, in a schema of its own.

    Raises:
        ClientError: the database does not answer, or allows no schema.
    """
    # libpq takes URLs that SQLAlchemy does not.
    url = "postgresql+psycopg://"
    connect = partial(
        psycopg.connect, database_url, options=f"-csearch_path={SCHEMA}", connect_timeout=10
    )
    # One process uses it, and one at a time.
    settings: dict[str, Any] = {
        "pool_size": 1,
        "max_overflow": 1,
        "pool_pre_ping": True,
        "creator": connect,
    }
    with reached(FIRST):
        engine = create_engine(url, **settings)
        with engine.begin() as connection:
            connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
        engine.dispose()
        return RDBStorage(url, engine_kwargs=settings)


def _space(plan: Plan) -> dict[str, BaseDistribution]:
    return {
        **{name: CategoricalDistribution(values) for name, values in plan.choices.items()},
        **{name: _numbers(span) for name, span in plan.ranges.items()},
    }


def _numbers(span: Range) -> BaseDistribution:
    # Optuna lowers an end that no step reaches, and says so; nobody here can act on it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if span.whole:
            step = int(span.step or 1)
            return IntDistribution(int(span.low), int(span.high), log=span.log, step=step)
        return FloatDistribution(span.low, span.high, log=span.log, step=span.step)


def _suggested(trial: Trial, name: str, way: BaseDistribution) -> Any:  # noqa: ANN401 - of any type
    match way:
        case CategoricalDistribution():
            return trial.suggest_categorical(name, way.choices)
        case IntDistribution():
            return trial.suggest_int(name, way.low, way.high, step=way.step, log=way.log)
        case FloatDistribution():
            return trial.suggest_float(name, way.low, way.high, step=way.step, log=way.log)
    raise TypeError(way)
