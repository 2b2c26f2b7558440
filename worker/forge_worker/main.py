"""`forge-worker`: the agent as a process, and what can be asked of it instead."""

import sys

from forge_schema.errors import ForgeError
from forge_schema.log import configure_log
from pydantic import ValidationError
from pydantic_settings import CliApp, SettingsError

from forge_worker import direct, help_text, over_http, signals
from forge_worker.agent import Agent
from forge_worker.folder_lock import held
from forge_worker.lent import within_the_machine
from forge_worker.runner_choice import available
from forge_worker.settings import WorkerSettings

EXIT_USAGE = 2


def main() -> None:
    """Run a worker until it is told to leave, or do what is asked instead."""
    if help_text.wanted(sys.argv[1:]):
        sys.stdout.write(help_text.text())
        return
    configure_log()
    settings = read_settings()
    configure_log(verbose=settings.verbose)
    try:
        sys.exit(_asked(settings))
    except ForgeError as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        sys.exit(f"forge-worker: {error.message}{hint}")
    except OSError as error:
        sys.exit(f"forge-worker: {error}")


def read_settings() -> WorkerSettings:
    """Return the settings; what is wrong with them is said, and ends the process."""
    try:
        return CliApp.run(WorkerSettings)
    except SettingsError as error:
        said = str(error).removeprefix("error parsing CLI: ")
        sys.stderr.write(f"forge-worker: {said}; --help lists the flags\n")
    except ValidationError as error:
        for fault in error.errors():
            flags = [f"--{part}: ".replace("_", "-") for part in fault["loc"]]
            sys.stderr.write(f"forge-worker: {''.join(flags)}{fault['msg']}\n")
    sys.exit(EXIT_USAGE)


def _asked(settings: WorkerSettings) -> int:
    serve(settings)
    return 0


def serve(settings: WorkerSettings) -> None:
    """Open what the agent needs, run it, and close everything again."""
    # It holds everybody's code and checkpoints.
    settings.worker_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    transport = over_http.transport if settings.url else direct.transport
    with held(settings.worker_dir), transport(settings) as linked:
        settings = within_the_machine(settings)
        agent = Agent(settings, linked.gateway, linked.objects, available(settings))
        signals.listen(drain=agent.drain, stop=agent.stop)
        with linked.loops(agent):
            agent.run()


if __name__ == "__main__":
    main()
