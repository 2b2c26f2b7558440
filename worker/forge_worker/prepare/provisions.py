"""Provisions: what a job needs besides its code. Each adds its part to the job's spec."""

from typing import Protocol

from forge_schema.model.errors import ForgeError

from forge_worker.attempt.attempt import LiveAttempt
from forge_worker.runners.runner import Runner, RunSpec


class Provision(Protocol):
    """One thing that a job may need, such as an environment for its requirements.

    It is called before every start, and returns the spec unchanged if the job does not need it.
    """

    def provide(self, spec: RunSpec, attempt: LiveAttempt, runner: Runner) -> RunSpec:
        """Prepare the thing, and return the spec that includes it.

        It may be called again after a store failure. Slow steps are announced with `attempt.note`,
        and call `attempt.while_wanted` regularly.

        Raises:
            ForgeError: it cannot be prepared; `job_run.REASONS` maps the error to a reason.
            Stopped: the attempt must stop.
        """


class ProvisionFailed(ForgeError):
    """The project's own files do not yield what it asks for: a failure of the job."""

    code = "provision_failed"
    exit_code: int | None = None
