"""The jobs of a run: the seed determines the n-th job and its client's actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from chaos.clients.programs import (
    DAMAGED,
    LINKED,
    NOT_WHOLE,
    REWRITTEN,
    STOPS,
    STORED,
    TIDY,
    below_a_shell,
    in_a_pipeline,
)
from chaos.dice import dice_of
from chaos.parts.inputs import OFFERED, SETS
from forge_schema.model.spec import JobSpec, Resources
from forge_schema.model.states import DependencyKind

SMALL: dict[str, Any] = {"cpus": 0.25, "memory_mb": 64, "disk_mb": 16}
OWNERS = ("ann", "ben", "cat")
# By `limits`.
LIMITED_OWNER, LIMITED_QUEUE = "cat", "narrow"
LIMITED_SHARE = 0.15
# Its jobs leave for those of a higher priority, of which some need most of a machine.
URGENT_QUEUE, URGENT_SHARE, URGENT_AT_ONCE = "urgent", 0.25, 6
LARGE_SHARE = 0.3
WAITING_SHARE = 0.12
SWEEP, AT_ONCE = "few-at-once", 2
# How many of the jobs that can run on several machines do.
GANG_SHARE = 0.1
SUBMITTED_AGAIN = 0.05
# Lets readers of an accepted result see which attempt wrote it.
MARK = 'echo "$FORGE_JOB_ID $FORGE_ATTEMPT" >"$FORGE_OUTPUT_DIR/mark"; '
LAST = 'echo "end of $FORGE_JOB_ID $FORGE_ATTEMPT"'
# Counts from its last checkpoint, and replaces the file atomically.
STEPS = """
step=0; cd "$FORGE_CHECKPOINT_DIR"; [ ! -e step ] || read -r step <step
echo "from $step"
while [ "$step" -lt "$1" ]; do
    step=$((step + 1)); echo "$step" >next; mv next step; echo "step $step"; sleep "$2"
done
echo "$step" >"$FORGE_OUTPUT_DIR/steps"; """
WRITES = """
n=0; while [ "$n" -lt "$1" ]; do
    n=$((n + 1)); head -c "$2" /dev/zero >"$FORGE_OUTPUT_DIR/part-$n"; sleep 0.1
done; """
# A file of three chunks, of which the first stays; its name ends in the digest of its content.
LARGE = """
cd "$FORGE_CHECKPOINT_DIR"; old=; before=
for file in state-*; do
    [ -e "$file" ] || break
    [ "$(sha256sum <"$file" | head -c 64)" = "${file##*-}" ] || exit DAMAGED
    before=$old; old=$file
done
step=${old#state-}; step=${step%-*}; step=${step:-0}
echo "from $step"
while [ "$step" -lt "$1" ]; do
    step=$((step + 1))
    { head -c 33554432 "${old:-/dev/urandom}"; head -c "$2" /dev/urandom; } >next
    new="state-$step-$(sha256sum <next | head -c 64)"; mv next "$new"
    [ "$3" = waits ] || echo "$step" >"$FORGE_CHECKPOINT_FILE"
    rm -f "$before"; before=$old; old=$new; sleep 3
done
echo "$step" >"$FORGE_OUTPUT_DIR/steps"; """.replace("DAMAGED", str(DAMAGED))
PRINTS = 'n=0; while [ "$n" -lt "$1" ]; do n=$((n + 1)); echo "line $n of $FORGE_ATTEMPT"; done; '
DEAF = 'trap \'\' TERM; n=0; while [ "$n" -lt "$1" ]; do n=$((n + 1)); sleep 0.5; done; '
# The shell is small; its child holds the memory, up to its limit.
EATS = "head -c 300000000 /dev/zero | tail >/dev/null; sleep 5; "
FILLS = 'head -c 40000000 /dev/zero >"$FORGE_OUTPUT_DIR/big"; sleep 8; '
# What is beside it must be whole, whatever was interrupted before.
READS = """
cd "$FORGE_INPUT_DATA" && sha256sum -c sums >"$FORGE_OUTPUT_DIR/sums" || exit NOT_WHOLE
read -r one <"$FORGE_INPUT_SET/one" && [ "$one" = 1 ] || exit NOT_WHOLE
sleep "$1"; """.replace("NOT_WHOLE", str(NOT_WHOLE))

Words = Callable[[Random], list[str]]
Acts = tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Plan:
    """A job; `acts` are its client's actions after the submit, and their delays in seconds.

    `writes` are the artifacts that the job has whenever it succeeds. `waits` is how it waits for a
    job that has not ended at its submit, if there is one.
    """

    spec: JobSpec
    writes: list[str]
    acts: Acts = ()
    waits: DependencyKind | None = None

    def behind(self, job_id: int) -> Plan:
        """Return the plan with its job waiting for another one."""
        if self.waits is None:
            return self
        spec = self.spec.model_copy(update={self.waits.value: [job_id]})
        return replace(self, spec=spec)


@dataclass(frozen=True)
class Recipe:
    """A kind of job: its frequency, its script and arguments, its client's actions.

    `gang` is whether it may run on several machines, `in_containers` how many run in one.
    """

    weight: float
    script: str = ""
    words: Words = lambda _: []
    acts: Callable[[Random], Acts] = lambda _: ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    writes: Callable[[list[str]], list[str]] = lambda _: []
    gang: bool = False
    in_containers: float = 0.05


def _preempts(dice: Random) -> Acts:
    return tuple((dice.uniform(1.0, 12.0), "preempt") for _ in range(dice.randint(1, 3)))


def _steps(dice: Random, *ways: str) -> list[str]:
    paces = [str(dice.randint(6, 24)), f"{dice.uniform(0.3, 0.9):.2f}"]
    return [*paces, *([dice.choice(ways)] if ways else [])]


def _half_preempted(dice: Random) -> Acts:
    return _preempts(dice) if dice.random() < 0.5 else ()


def _program(weight: float, script: str, *ways: str, **fields: object) -> Recipe:
    """Return the recipe of a program that knows nothing of Forge and runs on."""
    return Recipe(
        weight,
        script,
        lambda dice: _steps(dice, *ways),
        _half_preempted,
        {"max_failures": 2, **fields},
        lambda _: ["steps"],
        in_containers=0.25,
    )


RECIPES = {
    "instant": Recipe(24, gang=True),
    "sleeps": Recipe(18, 'sleep "$1"; ', lambda dice: [f"{dice.uniform(0.1, 3.0):.2f}"], gang=True),
    "steps": Recipe(
        30,
        STEPS,
        lambda dice: [str(dice.randint(4, 24)), f"{dice.uniform(0.3, 1.0):.2f}"],
        writes=lambda _: ["steps"],
        gang=True,
    ),
    "large": Recipe(
        4,
        LARGE,
        lambda dice: [
            str(dice.randint(2, 4)),
            str(dice.randint(34_000_000, 40_000_000)),
            dice.choice(["commits", "waits"]),
        ],
        fields={"resources": Resources(**{**SMALL, "disk_mb": 320}), "keep_checkpoints": 1},
        writes=lambda _: ["steps"],
        in_containers=0.75,
    ),
    "fails": Recipe(5, "echo fails; exit 1; ", gang=True),
    "typo": Recipe(2, "exec pyton train.py; "),
    "writes": Recipe(
        6,
        WRITES,
        lambda dice: [str(dice.randint(1, 5)), str(dice.randint(1, 500_000))],
        writes=lambda words: [f"part-{n + 1}" for n in range(int(words[0]))],
    ),
    "prints": Recipe(5, PRINTS, lambda dice: [str(dice.randint(50, 1500))]),
    "reads": Recipe(
        12,
        READS,
        lambda dice: [f"{dice.uniform(0.1, 3.0):.2f}"],
        writes=lambda _: ["sums"],
        in_containers=0.25,
    ),
    "cancelled": Recipe(
        6, STEPS, lambda _: ["20", "0.6"], lambda dice: ((dice.uniform(0.0, 10.0), "cancel"),)
    ),
    "preempted": Recipe(4, STEPS, lambda _: ["12", "0.6"], _preempts, gang=True),
    "deaf": Recipe(
        2,
        DEAF,
        lambda _: ["12"],
        lambda dice: ((dice.uniform(1.0, 4.0), "cancel"),),
        {"grace_s": 1},
    ),
    "late": Recipe(2, "sleep 30; ", fields={"timeout_s": 2}),
    "eats": Recipe(1, EATS, fields={"max_failures": 0}),
    "fills": Recipe(1, FILLS, fields={"max_failures": 0}),
    "wrapped": _program(6, below_a_shell(STOPS)),
    "piped": _program(5, in_a_pipeline(STOPS)),
    "linked": _program(7, below_a_shell(LINKED), "commits", "waits"),
    "database": _program(8, below_a_shell(STORED), "wal", "wal", "delete"),
    "rewritten": _program(7, below_a_shell(REWRITTEN)),
    "tidy": _program(5, below_a_shell(TIDY), checkpoint_dir="snapshots"),
}


def plan(seed: int, n: int, *, containers: bool, bundle: str, data: str) -> Plan:
    """Return the n-th job of a run.

    `bundle` is the digest of a project that some jobs run, `data` the bucket of what some read.
    """
    dice = dice_of(seed, "job", n)
    (kind,) = dice.choices(list(RECIPES), [recipe.weight for recipe in RECIPES.values()])
    recipe = RECIPES[kind]
    words, acts = recipe.words(dice), recipe.acts(dice)
    place = "container" if containers and dice.random() < recipe.in_containers else "process"
    names = (LIMITED_QUEUE, URGENT_QUEUE, "default")
    (queue,) = dice.choices(names, [LIMITED_SHARE, URGENT_SHARE, 1 - LIMITED_SHARE - URGENT_SHARE])
    spec = JobSpec(
        name=kind,
        owner=dice.choices(OWNERS, [3, 3, 1])[0],
        queue=queue,
        command=["sh", "-c", recipe.script + MARK + LAST, kind, *words],
        priority=dice.choice([0, 0, 0, -5, 5]),
        delay_s=dice.choice([0.0] * 9 + [dice.uniform(0.5, 4.0)]),
        idempotency_key=f"chaos-{seed}-{n}",
        bundle_digest=bundle if dice.random() < 0.1 else None,
        labels={"place": place},
        **{**_rules(dice), "resources": Resources(**SMALL), **recipe.fields},
    )
    if kind == "reads":
        inputs = {"data": f"s3://{data}/{dice.randrange(SETS)}", "set": f"folder:{OFFERED}"}
        spec = spec.model_copy(update={"inputs": inputs})
    if queue == URGENT_QUEUE and spec.priority > 0 and dice.random() < LARGE_SHARE:
        large = spec.resources.model_copy(update={"cpus": 0.75})
        spec = spec.model_copy(update={"resources": large})
    if dice.random() < WAITING_SHARE:
        spec = spec.model_copy(update={"sweep": SWEEP, "parallel": AT_ONCE})
    waits = dice.choice(list(DependencyKind)) if dice.random() < WAITING_SHARE else None
    if dice.random() < SUBMITTED_AGAIN:
        acts = (*acts, (dice.uniform(0.1, 20.0), "submit"))
    if recipe.gang and place == "process" and dice.random() < GANG_SHARE:
        nodes, most = dice.choice([(2, None), (3, None), (2, 4), (2, 6)])
        spec = spec.model_copy(update={"nodes": nodes, "max_nodes": most})
    return Plan(spec, ["mark", *recipe.writes(words)], acts, waits)


def _rules(dice: Random) -> dict[str, Any]:
    return {
        "max_failures": dice.choice([0, 1, 2]),
        "max_losses": dice.choice([2, 10, 10]),
        "backoff_s": 1,
        "grace_s": 2,
        "checkpoint_interval_s": dice.choice([1, 3]),
    }
