"""`forge explain`: why a job waits, where it would run, or how it ended."""

from collections.abc import Sequence
from typing import Annotated

import typer
from forge_schema.model.explanation import Chance, Explanation, Remedy, Requirement
from forge_schema.model.fields import Record
from forge_schema.model.job import MOST_EXPLAINED
from forge_schema.model.quantities import MIB, counted, duration_text, size_text
from forge_schema.model.spec import GANG_NETWORK, HANDLERS, INPUT, MAX_PRICE, RUNS, SECRET, SPOT
from forge_schema.model.states import Budget, reason_in_words

from forge_client.cli.options.names import LAST, JobId
from forge_client.cli.options.session import backend_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import narration, output
from forge_client.cli.show.job_details import submitter
from forge_client.cli.show.output import Column, Format
from forge_client.results.endings import first_line

SHOWN = 10
SIZES = {"memory_mb", "disk_mb", "vram_mb"}
NOUNS = {
    "memory_mb": "memory",
    "disk_mb": "disk",
    "vram_mb": "VRAM per GPU",
    "gpu_model": "GPU model",
    "cpus": "CPUs",
    "gpus": "GPUs",
    "address": "multi-node jobs",
    f"label:{RUNS}": "runs",
    f"label:{HANDLERS}": "handler",
    f"label:{GANG_NETWORK}": "gang network",
    f"label:{SPOT}": "spot machine",
    f"label:{MAX_PRICE}": "price per hour",
}
COSTS = {
    Budget.FAILURES: "a retry",
    Budget.LOSSES: "a restart after losses",
    Budget.PREEMPTIONS: "a restart after preemptions",
}
WORKERS: list[Column] = [
    ("JOBS", lambda w: w.leases),
    ("HEARD", lambda w: f"{duration_text(w.silent_s)} ago"),
    ("WHY", lambda w: w.text),
]
NEEDS: list[Column] = [
    ("NEEDS", lambda r: _noun(r.name)),
    ("WANTED", lambda r: _value(r.name, r.wanted)),
    ("HAS", lambda r: _value(r.name, r.has)),
    ("FREE", lambda r: "" if r.free is None else _value(r.name, r.free)),
    ("", lambda r: _verdict(r)),  # noqa: PLW0108 - it is defined below
]
BEGUN: list[Column] = [("FROM", lambda a: a.begun_with)]
ATTEMPTS: list[Column] = [
    ("ATTEMPT", lambda a: a.attempt),
    ("WORKER", lambda a: a.worker),
    ("REASON", lambda a: reason_in_words(a.reason)),
    ("COSTS", lambda a: COSTS.get(a.budget, "nothing")),
    ("EXIT", lambda a: a.exit_code),
    ("TOOK", lambda a: duration_text(a.held_s)),
    ("DETAIL", lambda a: first_line(a.detail)),
]


def explain(
    context: typer.Context,
    job: JobId = LAST,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Up to {counted(MOST_EXPLAINED, 'worker')}, not {SHOWN}.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Explain why a job waits and what would start it, where it runs, or how it ended.

    Without JOB, your newest.
    """
    with backend_of(context) as backend:
        explanation = backend.explain(job, workers=MOST_EXPLAINED if everything else SHOWN)
    output.show_one(explanation, form, lambda: _print(explanation))


def _print(explanation: Explanation) -> None:
    output.fields([
        ("job", f"{explanation.job_id} {explanation.name}, {explanation.state}"),
        ("why", explanation.text),
        ("queue", f"{explanation.queue}, priority {explanation.priority}"),
        ("submitted by", submitter(explanation.firing)),
        ("in front", _in_front(explanation)),
        ("estimate", _estimate(explanation)),
        ("waited", duration_text(explanation.run.waited_s) if explanation.run else ""),
        ("devices", " ".join(explanation.run.devices) if explanation.run else ""),
        ("detail", explanation.end.detail if explanation.end else ""),
        ("retry", explanation.end.retry if explanation.end else ""),
        ("begins", explanation.begins),
        ("spent", _spent(explanation)),
    ])  # fmt: skip
    _remedies(explanation.remedies)
    _section("", explanation.workers, [
        ("WORKER", lambda w: w.worker),
        ("CHANCE", lambda w: _chance(explanation, w.chance)),
        *WORKERS,
    ])  # fmt: skip
    if explanation.left_out:
        all_of_them = f"of all {explanation.workers_in_all}: {_counts(explanation)}"
        narration.say(f"not shown: {counted(explanation.left_out, 'worker')} {all_of_them}")
    if explanation.run:
        _section(
            f"requirements, and what {explanation.run.worker} has",
            explanation.run.requirements,
            NEEDS,
        )
    elif explanation.workers:
        nearest = explanation.workers[0]
        _section(f"requirements, and what {nearest.worker} has", nearest.requirements, NEEDS)
    begun = BEGUN if any(attempt.begun_with for attempt in explanation.attempts) else []
    _section("attempts", explanation.attempts, [*ATTEMPTS[:2], *begun, *ATTEMPTS[2:]])


def _section(title: str, rows: Sequence[Record], columns: list[Column]) -> None:
    if not rows:
        return
    output.blank()
    if title:
        output.fields([(title, " ")])
    output.show(rows, columns, Format.TABLE)


def _remedies(remedies: list[Remedy]) -> None:
    needed = [_remedy(remedy) for remedy in remedies if remedy.needed]
    others = [_remedy(each) for each in remedies if not each.needed]
    if not remedies:
        return
    output.blank()
    choose = "you can" if len(others) > 1 else "to do"
    output.fields([
        *(("to do" if n == 0 else " ", text) for n, text in enumerate(needed)),
        *((" " if n else choose, text) for n, text in enumerate(others)),
    ])  # fmt: skip


def _remedy(remedy: Remedy) -> str:
    return f"{remedy.text}: {remedy.command}" if remedy.command else remedy.text


def _in_front(explanation: Explanation) -> str:
    if not explanation.ahead:
        return ""
    jobs = counted(explanation.ahead, "job")
    return f"at least {jobs}" if explanation.ahead_is_bound else jobs


def _estimate(explanation: Explanation) -> str:
    if explanation.estimate is None:
        return ""
    return f"about {duration_text(explanation.estimate.wait_s)}: {explanation.estimate.basis}"


def _spent(explanation: Explanation) -> str:
    """List the budgets with their use, omitting unused ones."""
    return ", ".join(
        f"{budget.budget}: {budget.used} ({budget.granted} allowed)"
        for budget in explanation.budgets
        if budget.used
    )


def _counts(explanation: Explanation) -> str:
    return ", ".join(
        f"{n} {_chance(explanation, chance)}" for chance, n in explanation.counts.items()
    )


def _chance(explanation: Explanation, chance: str) -> str:
    # A job that a limit holds back does not start on a free worker either.
    return "free" if explanation.limits and chance == Chance.STARTS else chance.replace("_", " ")


def _verdict(requirement: Requirement) -> str:
    if not requirement.met:
        return "lacking"
    free, wanted = requirement.free, requirement.wanted
    if isinstance(free, int | float) and isinstance(wanted, int | float) and free < wanted:
        return "not free"
    return "ok"


def _noun(name: str) -> str:
    for prefix, noun in ((SECRET, "secret"), (INPUT, "input")):
        if name.startswith(f"label:{prefix}"):
            return f"{noun} {name.removeprefix(f'label:{prefix}')}"
    return NOUNS.get(name, name.replace("label:", "label "))


def _value(name: str, value: object) -> str:
    if name.startswith((f"label:{SECRET}", f"label:{INPUT}")):
        return ""
    if name in {f"label:{RUNS}", f"label:{HANDLERS}"}:
        return str(value or "").strip("*,")
    if isinstance(value, int | float):
        return size_text(value * MIB) if name in SIZES else f"{value:g}"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)
