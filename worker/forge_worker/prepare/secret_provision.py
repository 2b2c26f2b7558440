"""A job's secrets: looked up by name where it runs, and covered in all that is kept of it."""

from dataclasses import replace

from forge_worker.job_runs.attempt import Attempt
from forge_worker.job_runs.redact import Redactor
from forge_worker.prepare.secret_store import Vault
from forge_worker.runners.runner import Runner, RunSpec


class SecretProvision:
    """Gives each job the secrets that it names, as variables of the same names."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def provide(self, spec: RunSpec, attempt: Attempt, runner: Runner) -> RunSpec:  # noqa: ARG002  as every provision
        """Return the start with the secrets.

        Raises:
            SecretUnusable: one is not here; another worker may have it.
        """
        names = attempt.grant.spec.get("secrets", [])
        secrets = {name: self._vault.secret(attempt.grant.owner, name) for name in names}
        attempt.redactor = Redactor(secrets.values())
        return replace(spec, secrets={**spec.secrets, **secrets})
