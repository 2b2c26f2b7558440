"""What a gang, a job on several machines, waits for: free machines, and then for each other."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from forge_schema.database.pool import Database, Row
from forge_schema.explain.changes import for_idle, in_words
from forge_schema.explain.fleet import SERVES, FleetChances
from forge_schema.explain.remedies import back, to_name
from forge_schema.explain.text import ADDRESS, GANGS_ALLOWED, LABEL, wish
from forge_schema.model.explanation import Chance, Outlook, Remedy, WorkerChance
from forge_schema.model.lease import Member
from forge_schema.model.quantities import counted, counted_range, duration_text
from forge_schema.model.states import Phase

# The most members that are named.
NAMED = 5
REACHABLE = 2
BEFORE_START = {Phase.CLAIMED, Phase.PREPARING}


@dataclass(frozen=True, slots=True)
class Machines:
    """How many machines a gang needs, how many could run it now or at all, and how many are free.

    If its machines must have the same value of the label `same`, or one model of GPU, they are
    those with what most have; `labelled` have the label at all, and `unlike` only another model.
    `kept` keep room for it, for another `kept_s` seconds, and run jobs that end within `short_s`
    until then. It takes up to `most`.
    """

    needed: int
    most: int
    known: int
    able: int
    free: int
    checked: int
    kept: int
    kept_s: float
    short_s: float
    same: str | None
    unlike: int
    labelled: int

    def outlook(self) -> Outlook:
        """Return what keeps the gang from starting."""
        if not self.checked:
            return Outlook.NO_WORKER
        if self.free >= self.needed:
            return Outlook.STARTS
        if self.able >= self.needed:
            return Outlook.BUSY
        return Outlook.UNAVAILABLE if self.known >= self.needed else Outlook.UNFIT

    def text(self) -> str:
        """Return the same as a sentence."""
        many = f"the {counted_range(self.needed, self.most, 'machine')} that it needs"
        are = "is" if self.able == 1 else "are"
        return {
            Outlook.NO_WORKER: "no worker is registered",
            Outlook.STARTS: f"it would start now: {self._free()}{many} are free",
            Outlook.BUSY: f"it waits for machines: {self.free} of {many} are free{self._kept()}",
            Outlook.UNAVAILABLE: f"only {self.able} of {many} {are} taking jobs now{self._kept()}",
            Outlook.UNFIT: self._unfit(many) + self._kept(),
        }[self.outlook()]

    def _unfit(self, many: str) -> str:
        checked = f"({self.checked} checked)"
        if not self.same and self.unlike:
            alike = f"only {self.known} of {many} have one model of GPU"
            return f"{alike}; --mixed allows others {checked}"
        if not self.same:
            could = f"only {counted(self.known, 'worker')}" if self.known else "no worker"
            needs = f"it needs {counted_range(self.needed, self.most, 'machine')}"
            return f"{needs}, and {could} could run it {checked}"
        if not self.labelled:
            return f"no worker has the label {self.same}, which --same compares {checked}"
        return f"only {self.known} of {many} have the same value of {self.same} {checked}"

    def _free(self) -> str:
        return "" if self.most == self.needed else f"{min(self.free, self.most)} of "

    def _kept(self) -> str:
        short = " (short jobs may pass)" if self.short_s > 0 else ""
        text = kept_text(self.kept, self.kept_s)
        return f"; {text}{short}" if text else ""


def kept_text(kept: int, kept_s: float | None) -> str:
    """Say how many workers keep room for a gang, and for how long."""
    verb = "keeps" if kept == 1 else "keep"
    pause = duration_text(kept_s or 0.0)
    return f"{counted(kept, 'worker')} {verb} room for it, for up to {pause}" if kept else ""


def members_text(database: Database, job_id: int) -> str:
    """Say which members of a job's run the others wait for, before they start or at the end."""
    rows = database.rows("explain_members", again=True, job_id=job_id)
    nodes = max((row.pop("nodes") for row in rows), default=0)
    members = [Member(**row) for row in rows]
    if len(members) < nodes:
        return _left(members, nodes)
    return _gathering([member for member in members if member.phase in BEFORE_START], nodes)


def _left(members: list[Member], nodes: int) -> str:
    have = "have" if len(members) > 1 else "has"
    named = [f"rank {member.rank} on {member.worker}" for member in members]
    return (
        f"{len(members)} of its {counted(nodes, 'rank')} {have} not ended: {_some(named)}"
        if members
        else ""
    )


def _gathering(members: list[Member], nodes: int) -> str:
    # Those that are furthest behind.
    stages = [(member.phase != Phase.CLAIMED, member.step) for member in members]
    late = [member for member, stage in zip(members, stages, strict=True) if stage == min(stages)]
    if not late or min(member.step for member in late) >= REACHABLE:
        return ""
    named = [f"rank {member.rank} on {member.worker} {member.late}" for member in late]
    return f"its {counted(nodes, 'machine')} are gathering: {_some(named)}"


def _some(named: list[str]) -> str:
    more = [f"and {len(named) - NAMED} more"] if len(named) > NAMED else []
    return ", ".join([*named[:NAMED], *more])


def machines(job: Row, fleet: FleetChances) -> Machines:
    """Count the machines that a gang can have."""
    fits = [chance for chance in fleet.chances if chance.chance is not Chance.UNFIT]
    serves = [chance for chance in fits if chance.chance in SERVES]
    free = [chance for chance in serves if chance.chance is Chance.STARTS]
    return Machines(
        needed=job["nodes"],
        most=job["max_nodes"],
        known=_most(fleet, fits),
        able=_most(fleet, serves),
        free=_most(fleet, free),
        checked=fleet.in_all,
        kept=job["drafted"],
        kept_s=job["drafted_s"] or 0.0,
        short_s=job["short_s"] or 0.0,
        same=job["same"],
        unlike=len(fits) - _most(fleet, fits) if job["one_model"] else 0,
        labelled=sum(
            job["same"] in candidate.row["labels"] for candidate in fleet.candidates.values()
        ),
    )


def _most(fleet: FleetChances, chances: Iterable[WorkerChance]) -> int:
    """Count workers, of those that are alike in the way in which most are."""
    kinds = Counter(fleet.candidates[chance.worker_id].row["alike"] for chance in chances)
    return max(kinds.values(), default=0)


def remedies(job: Row, gang: Machines, fleet: FleetChances) -> list[Remedy]:
    """Return what would start a gang that no limit holds back; none if it only has to wait."""
    if gang.outlook() in {Outlook.STARTS, Outlook.BUSY}:
        return []
    again = [
        back(fleet.candidates[chance.worker_id], chance)
        for chance in fleet.chances
        if chance.chance is not Chance.UNFIT and chance.chance not in SERVES
    ]
    return [*again[:NAMED], *_smaller(job, gang, fleet), _more(job, gang, fleet), *_fewer(gang)]


def _more(job: Row, gang: Machines, fleet: FleetChances) -> Remedy:
    if gang.same and not gang.labelled and gang.checked:
        text = f"start workers with the label (--labels {gang.same}=…)"
        return Remedy(code="add_worker", text=text)
    missing = gang.needed - gang.able
    # Everything but that they may take part in gangs.
    ready = sum(chance.lacking == [ADDRESS] and chance.available for chance in fleet.chances)
    restarted = min(ready, missing)
    again = f"restart {restarted} of them with {GANGS_ALLOWED} (forge up {GANGS_ALLOWED})"
    if restarted == missing and not gang.same:
        return Remedy(code="allow_gangs", text=again)
    same = gang.same and f"the same value of the label {gang.same}"
    named = [asked for asked in to_name(job, fleet) if asked.name != f"{LABEL}{gang.same}"]
    wanted = ", ".join([*map(wish, named), *filter(None, [same])])
    text = f"start {counted(missing - restarted, 'more worker')} with {wanted}"
    if restarted:
        text = f"{again}, and {text}"
    return Remedy(code="add_worker", text=text)


def _fewer(gang: Machines) -> list[Remedy]:
    if gang.able <= 1:
        return []
    least = "" if gang.most == gang.needed else "at least "
    text = f"submit it with {least}{counted(gang.able, 'node')} instead of {gang.needed}"
    return [Remedy(code="ask_less", text=text, changes={"nodes": gang.able})]


def _smaller(job: Row, gang: Machines, fleet: FleetChances) -> list[Remedy]:
    """Suggest what enough of the workers have, if they need not be alike in anything."""
    if gang.same or job["one_model"]:
        return []
    unfit = [
        fleet.candidates[chance.worker_id]
        for chance in fleet.chances
        if chance.chance is Chance.UNFIT
    ]
    asked = [(candidate, for_idle(candidate)) for candidate in unfit if candidate.takes]
    ways = [
        (in_words(candidate.wants, changes), changes) for candidate, changes in asked if changes
    ]
    ((words, count),) = Counter(words for words, _ in ways).most_common(1) or [("", 0)]
    if not count or gang.able + count < gang.needed:
        return []
    text = f"{words}: {counted(gang.able + count, 'worker')} have it"
    return [
        Remedy(code="ask_less", text=text, changes=dict(ways)[words], worker=unfit[0].row["name"])
    ]
