"""What a job may need beside its code: each provision adds its part to the job's start."""

from typing import Protocol

from forge_schema.model.errors import ForgeError

from forge_worker.attempt.attempt import Attempt
from forge_worker.runners.runner import Runner, RunSpec


class Provision(Protocol):
    """One thing that a job may need, such as an environment for its requirements.

    It is asked before every start, and answers with the start as it was where there is no need.
    """

    def provide(self, spec: RunSpec, attempt: Attempt, runner: Runner) -> RunSpec:
        """Make the thing, and return the start that has it.

        It may be called again when it failed for the store's sake; it says in `attempt.note` what
        takes long, and calls `attempt.while_wanted` meanwhile.

        Raises:
            ForgeError: it cannot be had; `job_run.REASONS` names the reason that this is.
            Stopped: the attempt must stop.
        """


class ProvisionFailed(ForgeError):
    """What the project asked for could not be made of what it brought: a failure of the job's."""

    code = "provision_failed"
    exit_code: int | None = None
