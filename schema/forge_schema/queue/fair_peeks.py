"""How many jobs of each of many lanes a claim reads: hardly more than it would take."""

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace

from forge_schema.queue.lane import Lane

# Jobs read beyond those to take: other claims may have locked the first ones.
LEAST_PAST = 2
# Up to so many jobs, the order of claims is exact even if more urgent jobs came just now.
EXACT = 16


def fair_peeks(lanes: Sequence[Lane], count: int, past: int) -> dict[int, int]:
    """Return how many jobs of each lane to read for a claim of `count`, by the lane's id.

    Lanes whose first jobs are equally urgent share the claim, the one with the least share first.
    """
    turns: Counter[int] = Counter()
    for nice in {lane.nice for lane in lanes}:
        turns.update(_turns([lane for lane in lanes if lane.nice == nice], count))
    each = max(LEAST_PAST, past // max(1, len(turns)))
    return {
        lane.id: max(turns[lane.id], min(count, EXACT)) + (each if turns[lane.id] else LEAST_PAST)
        for lane in lanes
    }


def _turns(lanes: Iterable[Lane], count: int) -> Iterable[int]:
    """Yield the ids of the lanes that take turns, so that their shares stay even."""
    heap = [(lane.share, lane.id, lane.step) for lane in lanes]
    heapify(heap)
    for _ in range(count):
        share, lane_id, step = heap[0]
        yield lane_id
        heapreplace(heap, (share + step, lane_id, step))
