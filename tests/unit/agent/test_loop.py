"""A loop that is told to end at any moment ends."""

from threading import Event, Thread

from forge_worker.loop import Loop

DAY_S = 86_400.0


class EndedMeanwhile(Event):
    """Has another thread end the loop just before the first `clear`."""

    ended: Loop | None = None

    def clear(self) -> None:
        loop, self.ended = self.ended, None
        if loop is not None:
            ending = Thread(target=loop.end, args=(0,))
            ending.start()
            ending.join()
        super().clear()


class Counting(Loop):
    steps = 0

    def step(self) -> None:
        self.steps += 1


def test_loop_ended_as_it_begins_a_round_does_not_wait_out_its_period() -> None:
    woken = EndedMeanwhile()
    loop = woken.ended = Counting(DAY_S, woken=woken)
    loop.start()
    loop.end(60)
    assert loop.steps == 0
