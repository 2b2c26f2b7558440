"""`forge sweep run` and `resume`: a sweep whose points are chosen while it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from forge_schema.model.spec import MOST_PARALLEL

from forge_client.backend import Backend
from forge_client.cli.options import job_options as o
from forge_client.cli.options.session import settings_of
from forge_client.cli.options.values import DryRunOption, FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.output import Format, inline
from forge_client.cli.show.submitted import ready, show_plan
from forge_client.connection import connect, require_extra
from forge_client.default_paths import studies
from forge_client.errors import ClientError, ExitCode
from forge_client.project.matrix import from_options, from_toml, sweep_name
from forge_client.project.submit import uploaded
from forge_client.results.names import whole_name
from forge_client.search.plan import LIMITS, Plan, choices, ranges
from forge_client.settings import Settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from optuna.storages import BaseStorage

    from forge_client.search.studies import Search

PARALLEL = 4
StorageOption = Annotated[
    str | None,
    typer.Option(
        envvar="FORGE_STUDY_STORAGE",
        metavar="URL",
        help="Optuna's storage; default: the database, or with a server a file of yours.",
    ),
]
TrialsOption = Annotated[int | None, typer.Option(help="Number of trials.", min=1)]
ParallelOption = Annotated[
    int | None, typer.Option(help="Maximum number of jobs at once.", min=1, max=MOST_PARALLEL)
]
GpuHoursOption = Annotated[float | None, typer.Option(help="GPU-hours that end the search.", min=0)]
CostOption = Annotated[
    float | None, typer.Option(help="Cost of its jobs that ends the search.", min=0)
]


# A trial begins when the search submits it.
@o.with_job_options(without={"delay"})
def run(
    context: typer.Context,
    metric: Annotated[
        str,
        typer.Option(help="What to minimise: a key of the result or the metrics; or loss.min."),
    ],
    folder: Annotated[
        Path, typer.Argument(help="Project folder, with an optional forge.toml.")
    ] = Path(),
    span: Annotated[
        list[str] | None,
        typer.Option(
            "--range", help="Numbers to choose from: NAME=LOW..HIGH, then perhaps ,log or ,step=X."
        ),
    ] = None,
    matrix: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE,VALUE: values to choose from.")
    ] = None,
    maximize: Annotated[bool, typer.Option("--maximize", help="Maximise the metric.")] = False,
    sampler: Annotated[
        str, typer.Option(help="grid, random, tpe, or any of Optuna's; or module:Class.")
    ] = "tpe",
    pruner: Annotated[
        str | None,
        typer.Option(help="median, hyperband, or any of Optuna's; or module:Class."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampler.", min=0)] = None,
    trials: TrialsOption = None,
    parallel: ParallelOption = None,
    budget_gpu_hours: GpuHoursOption = None,
    budget_cost: CostOption = None,
    storage: StorageOption = None,
    sweep: Annotated[
        str | None, typer.Option(help="Prefix of the sweep's name; default: the job's name.")
    ] = None,
    dry_run: DryRunOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Search for the best parameters: Optuna chooses each trial's, and a job runs it.

    In the command, {name} stands for a parameter's value, {trial} for the number of the trial, and
    {{ for a brace. This process submits the jobs and stops bad ones. If it ends early, the jobs
    that run continue, and `forge sweep resume` resumes the search.
    """
    require_extra("optuna", "search", "search")
    project = o.project_of(context)
    base = o.named_request(context, project)
    key = base.idempotency_key
    settings = settings_of(context, project)
    with connect(settings) as backend:
        plan = Plan(
            sweep=sweep_name(sweep or base.name or "search", key),
            owner=settings.job_owner or backend.me().owner,
            spec=base.spec(owner=settings.job_owner, name=base.name or ""),
            choices=choices({**from_toml(project.matrix), **from_options(matrix or [])}),
            ranges=ranges(span or []),
            metric=metric,
            maximize=maximize,
            sampler=sampler,
            pruner=pruner,
            seed=seed,
            trials=trials,
            parallel=parallel or project.parallel or PARALLEL,
            gpu_hours=budget_gpu_hours,
            cost=budget_cost,
        ).checked()

        from forge_client.search.samplers import check_names  # noqa: PLC0415 - Optuna is an extra
        from forge_client.search.studies import Search  # noqa: PLC0415 - as above

        check_names(plan)
        for parameter, numbers in plan.ranges.items():
            if numbers.note:
                narration.say(f"{parameter}: {numbers.note}")
        base = base.model_copy(update={"idempotency_key": None})
        whole = ready(settings.job_owner, project, [base], folder)
        if dry_run:
            show_plan(settings, whole, form)
            return
        with _storage(settings, storage) as kept:
            (spec,) = uploaded(backend, whole)
            plan = plan.model_copy(update={"spec": spec})
            _drive(backend, Search.begun(kept, plan), form)


def resume(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="SWEEP", help="The sweep's name, or the start of it.")
    ],
    trials: TrialsOption = None,
    parallel: ParallelOption = None,
    budget_gpu_hours: GpuHoursOption = None,
    budget_cost: CostOption = None,
    storage: StorageOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Continue a search whose process ended, with the same code, options and trials.

    A search that is over continues if it may have more trials, or may spend more.
    """
    require_extra("optuna", "search", "search")
    settings = settings_of(context)
    with connect(settings) as backend, _storage(settings, storage) as kept:
        from forge_client.search.studies import Search  # noqa: PLC0415 - Optuna is an extra

        search = Search.known(kept, whole_name(backend, name, settings.job_owner))
        asked = (trials, parallel, budget_gpu_hours, budget_cost)
        limits = {
            name: limit for name, limit in zip(LIMITS, asked, strict=True) if limit is not None
        }
        if limits:
            search.extend(limits)
        _drive(backend, search, form)


def _storage(settings: Settings, url: str | None) -> "AbstractContextManager[BaseStorage]":
    import optuna  # noqa: PLC0415 - an extra

    from forge_client.search import studies as of  # noqa: PLC0415 - as above

    # What it logs about each trial is said in our words.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if url:
        return of.closing(of.opened(url))
    if not settings.url:
        return of.closing(of.beside_the_queue(settings.connection().database_url))
    path = studies()
    # A study has the job, with its environment.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return of.closing(of.opened(f"sqlite:///{path}"))


def _drive(backend: Backend, search: "Search", form: Format) -> None:
    from forge_client.search.driver import Driver, best  # noqa: PLC0415 - Optuna is an extra

    sweep = search.plan.sweep
    search.hold()
    narration.say(f"search {sweep}; if this process ends: `forge sweep resume {sweep}`")
    try:
        Driver(backend, search, narration.say).run()
    except KeyboardInterrupt:
        narration.say(
            f"the jobs that run continue; `forge sweep resume {sweep}` resumes the search,"
            f" `forge cancel --sweep {sweep}` ends its jobs"
        )
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    winner = best(search)
    states: dict[str, int] = {}
    for trial in search.trials():
        word = trial.state.name.lower()
        states[word] = states.get(word, 0) + 1
    if winner is None:
        raise ClientError(
            f"no trial of {sweep} succeeded",
            hint=f"`forge sweep show {sweep}` lists the jobs; `forge logs JOB` shows their output",
            code="job_failed",
        )
    answer = {"sweep": sweep, "states": states, "best": winner}
    output.show_one(answer, form, lambda: _print(search.plan, states, winner))


def _print(plan: Plan, states: dict[str, int], winner: dict[str, Any]) -> None:
    narration.say(", ".join(f"{count} {word}" for word, count in states.items()))
    parameters = ", ".join(
        f"{name} {inline(value)}" for name, value in winner["parameters"].items()
    )
    narration.say(
        f"best: trial {winner['trial']}, {plan.metric} {winner['value']:.6g}, with {parameters}"
    )
    print(winner["job_id"])  # noqa: T201 - the data
