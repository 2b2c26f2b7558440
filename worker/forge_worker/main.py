"""`forge-worker`: run the agent, or one of the commands about it."""

from forge_worker import linux  # other systems lack what the imports below need

linux.required()

from forge_schema.program import lean  # it makes the imports below cheaper

# It retries functions, and no coroutines of tornado, which comes with notebooks.
lean.without("tornado", "stamina")

# isort: split
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING

import stamina
import structlog
from forge_schema.access.tokens import hide
from forge_schema.database.pool import AccessRefused
from forge_schema.model.errors import ForgeError
from forge_schema.program import faults
from forge_schema.program import help as settings_help
from forge_schema.program.log import configure_log
from forge_schema.queue.registry import NameInUse
from stamina.instrumentation import RetryDetails

from forge_worker.agent import beside_up, crashes, registration
from forge_worker.agent.agent import Agent
from forge_worker.agent.idle_exit import after_exit
from forge_worker.agent.registration import until_answered
from forge_worker.circuit_breaker import CircuitOpen, QueueRefused
from forge_worker.commands import recovery, status
from forge_worker.commands.doctor import lacking
from forge_worker.commands.recovery import put_aside
from forge_worker.connect import connect
from forge_worker.machine import speed
from forge_worker.privacy import shown_flags
from forge_worker.runners.choice import available
from forge_worker.runners.docker.runner import engine_answers
from forge_worker.settings import help as help_text
from forge_worker.settings.settings import WorkerSettings, clamp_to_machine
from forge_worker.shells.shells import ShellService
from forge_worker.worker_folder import STOP_IT, held

if TYPE_CHECKING:
    from forge_worker.metrics_port import Monitor

# Flags of other agents, and what this one has instead.
WORDS = {
    **dict.fromkeys(
        ("--name", "--worker-id", "--id", "--hostname", "--node-name"),
        "did you mean --worker-name?",
    ),
    **dict.fromkeys(
        ("--server", "--server-url", "--api-url", "--endpoint", "--controller", "--address"),
        "did you mean --url?",
    ),
    **dict.fromkeys(
        ("--api-key", "--api-token", "--key", "--worker-token", "--auth-token", "--secret"),
        "a worker has a token: --token-file or FORGE_TOKEN",
    ),
    **dict.fromkeys(("-v", "--debug", "--log-level"), "did you mean --verbose?"),
    **dict.fromkeys(
        ("--concurrency", "-c", "--slots", "--jobs", "--parallel"), "did you mean --max-jobs?"
    ),
    **dict.fromkeys(("--gpu-ids", "--devices", "--cuda-devices"), "did you mean --gpus?"),
    **dict.fromkeys(("--once", "--one-job", "--burst"), "did you mean --ephemeral?"),
    **dict.fromkeys(
        ("--queue", "--queues", "-q", "-Q"),
        "leave it out: a worker takes jobs of all queues that fit it; jobs choose by its --labels",
    ),
    "--persistent": "leave it out: a worker stays unless --ephemeral is given",
    "--enable-swap": "did you mean --allow-swap?",
    "--reconnect-attempts": "leave it out: it tries until it is stopped; see --reconnect-limit-s",
}
# The exit code of `systemctl status` for a service that is not running.
EXIT_NO_AGENT = 3
# Another worker has this name, or has replaced this one.
EXIT_NAME_IN_USE = 4
# The queue refuses the token, the password or the role, or its certificate is not trusted.
EXIT_REFUSED = 5
# It had nothing to do for as long as the operator allows; systemd must not start it again.
EXIT_IDLE = 6

log = structlog.get_logger(__name__)

Handler = Callable[[int, FrameType | None], None]


def main() -> None:
    """Run a worker until it is told to leave, or run the command that the flags name."""
    if settings_help.wanted(sys.argv[1:]):
        sys.stdout.write(help_text.text())
        return
    hide()
    configure_log()
    settings = read_settings()
    configure_log(verbose=settings.verbose)
    with faults.ending("forge-worker", exit_code):
        sys.exit(_asked(settings))


def exit_code(error: ForgeError) -> int:
    """Return the exit code for an error that ends the program."""
    if isinstance(error, QueueRefused | AccessRefused):
        return EXIT_REFUSED
    return EXIT_NAME_IN_USE if isinstance(error, NameInUse) else 1


def read_settings() -> WorkerSettings:
    """Return the settings; print what is wrong with them and exit if they are invalid."""
    return faults.read("forge-worker", WorkerSettings, beside_up.read, words=WORDS)


def _asked(settings: WorkerSettings) -> int:
    if settings.status:
        return tell_status(settings)
    if settings.profile_machine:
        tell_speed(settings)
    elif settings.recover or settings.reset_state:
        clear(settings)
    else:
        return serve(settings)
    return 0


def tell_status(settings: WorkerSettings) -> int:
    """Print the worker's status, and return an exit code: 0 if an agent is running."""
    report = status.look(settings)
    beside = [
        folder
        for folder in beside_up.joined(settings.worker_dir.parent)
        if folder != settings.worker_dir
    ]
    report["beside"] = [str(folder) for folder in beside]
    text = json.dumps(report, indent=2) if settings.json_output else status.words(report)
    sys.stdout.write(f"{text}\n")
    return 0 if report["running"] else EXIT_NO_AGENT


def tell_speed(settings: WorkerSettings) -> None:
    """Measure the machine, and print the result.

    Raises:
        FolderTaken: an agent is running in this folder; its jobs would share the machine.
    """
    with held(settings.worker_dir, hint=STOP_IT):
        put_aside(settings.worker_dir)
        profile = speed.profile(settings)
    text = json.dumps(profile.reported()) if settings.json_output else speed.words(profile)
    sys.stdout.write(f"{text}\n")


def clear(settings: WorkerSettings) -> None:
    """Remove what a killed agent left behind, and print a line for each thing.

    Raises:
        FolderTaken: an agent is running in this folder.
    """
    with held(settings.worker_dir, hint=STOP_IT):
        put_aside(settings.worker_dir)
        lines = recovery.reset(settings) if settings.reset_state else recovery.recover(settings)
        for line in lines:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def serve(settings: WorkerSettings) -> int:
    """Run the agent with its connections, close them afterwards, and return an exit code.

    Raises:
        ProgramFailed: the worker left because it was idle, and the operator's program failed.
    """
    lean.loaded()
    leave_at_once()
    stamina.instrumentation.set_on_retry_hooks([log_retry])
    folder = settings.worker_dir
    pause = partial(registration.pause, settings)
    if flags := shown_flags(sys.argv[1:]):
        do = "give them as variables (FORGE_TOKEN, FORGE_DATABASE_URL) or as --token-file"
        log.warning("command_lines_readable", flags=flags, do=do)
    with held(folder), crashes.counted(folder, limit_s=settings.crash_limit_s, wait=pause):
        put_aside(folder)
        for lack in lacking(settings):
            log.warning("requirement_missing", what=lack.what, so=lack.so, do=lack.do)
        speed.at_start(settings)
        inside = not (settings.uses_engine and engine_answers())
        idle = _work(clamp_to_machine(settings, inside=inside))
    if idle and settings.on_idle_exit:
        after_exit(settings.on_idle_exit, settings.name())
    return EXIT_IDLE if idle else 0


def log_retry(details: RetryDetails) -> None:
    """Log a retry of something that failed, unless its reason was logged once for all."""
    if not isinstance(details.caused_by, CircuitOpen):
        what, why = details.name, repr(details.caused_by)
        log.warning("retry", what=what, why=why, again_in_s=round(details.wait_for, 1))


def _work(settings: WorkerSettings) -> bool:
    """Return whether the worker left because it was idle."""
    with ExitStack() as stack:
        transport = until_answered(
            lambda: stack.enter_context(connect(settings)),
            limit_s=settings.reconnect_limit_s,
            unanswered=partial(registration.end_leftovers, settings),
        )
        monitor = _monitor(settings)
        transport = monitor.on(transport) if monitor else transport
        agent = Agent(
            settings,
            transport.gateway,
            transport.objects,
            available(settings),
            refusals=transport.refusals,
        )
        if monitor and settings.metrics_port is not None:
            host, port = settings.metrics_host, settings.metrics_port
            stack.enter_context(monitor.served(agent, host, port))
        leaving = agent.leaving
        listen(drain=leaving.drain, stop=leaving.stop, hand_over=leaving.hand_over)
        shells = stack.enter_context(closing(ShellService(settings, agent.running.attempts)))
        with transport.loops(
            work=agent.claim_loop.wake, asked=agent.lease_renewal.wake, called=shells.open
        ):
            # What is there by now stays: it need not be searched for garbage again and again.
            gc.freeze()
            agent.run()
            if leaving.handed_over:
                _vanish(settings)
        return bool(leaving.idle)


def _vanish(settings: WorkerSettings) -> None:
    """End this process at once: closing anything would fail the jobs, whose threads still run."""
    crashes.forget(settings.worker_dir)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _monitor(settings: WorkerSettings) -> "Monitor | None":
    if settings.metrics_port is None:
        return None
    # Only the monitor needs its library, which may not be installed.
    from forge_worker.metrics_port import Monitor  # noqa: PLC0415

    return Monitor()


def leave_at_once() -> None:
    """Let each of the signals end the process cleanly while there is no agent yet.

    The first process of a container does not receive signals for which it has no handler.
    """

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    _handle(leave)


def listen(
    *, drain: Callable[[], None], stop: Callable[[], None], hand_over: Callable[[], None]
) -> None:
    """Handle signals: SIGINT drains, a second one stops; SIGTERM, as sent at preemption, stops.

    SIGUSR2 hands the jobs over to the next agent, also while the worker drains.
    """
    came: SimpleQueue[int] = SimpleQueue()
    _handle(lambda number, _: came.put(number))

    def heed() -> None:
        number = came.get()
        if number == signal.SIGINT:
            drain()
            number = came.get()
        hand_over() if number == signal.SIGUSR2 else stop()

    Thread(target=heed, name="signals", daemon=True).start()


def _handle(handler: Handler) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
    for number in numbers:
        signal.signal(number, handler)
    # Some programs start others with the signals blocked that they handle themselves.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


if __name__ == "__main__":
    main()
