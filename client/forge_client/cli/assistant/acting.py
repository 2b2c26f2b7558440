"""What an assistant may do: submit jobs and sweeps, cancel them once that was confirmed."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from forge_schema.model.quantities import counted, size_text

from forge_client.cli.assistant.reading import JobHandle, Reading, answer
from forge_client.errors import ClientError
from forge_client.sdk.client import Client
from forge_client.sdk.spec import JobSpec


class Acting:
    """The tools that change something; their docstrings are what the assistant knows of them."""

    def __init__(self, client: Callable[[], Client], reading: Reading) -> None:
        self._client = client
        self._reading = reading

    def submit(
        self,
        folder: str,
        command: str | list[str],
        fields: dict[str, Any] | None = None,
        key: str = "",
    ) -> str:
        """Submit a folder's code and a command as one job.

        Args:
            folder: the project, on this machine, as an absolute path; a forge.toml in it has
                fields that are not given here.
            command: what to run in it, such as `python train.py --lr 0.1`.
            fields: fields of the job, such as `{"name": "base", "gpus": 1, "timeout": "2h"}`;
                fields() lists them.
            key: a word of your own, the same if you repeat this call after a lost answer: then it
                is submitted once.
        """
        job = self._client().submit(folder, command, **_fields(fields, key))
        return answer(
            [f"job {job.id} {job.name!r} is submitted"], f"wait({job.id}), logs({job.id})"
        )

    def submit_sweep(
        self,
        folder: str,
        command: str | list[str],
        matrix: dict[str, list[str | float]],
        fields: dict[str, Any] | None = None,
        repeat: int = 1,
        key: str = "",
    ) -> str:
        """Submit one job for each combination of parameters, all of them or none.

        Args:
            folder: the project, on this machine, as an absolute path.
            command: with a `{name}` for each parameter: `python train.py --lr {lr}`.
            matrix: the values of each parameter, such as `{"lr": [0.1, 0.01]}`.
            fields: fields of every job, as `submit` takes them; `parallel` is how many run at
                once, `sweep` the beginning of the sweep's name.
            repeat: how many jobs for each combination.
            key: as for `submit`.
        """
        sweep = self._client().benchmark(
            folder, command, matrix=matrix, repeat=repeat, **_fields(fields, key)
        )
        jobs = counted(sum(sweep.states().values()), "job")
        follow = f"wait(sweep={sweep.name!r}), then sweep({sweep.name!r}, metric=…) in its order"
        return answer([f"sweep {sweep.name!r} of {jobs} is submitted"], follow)

    def cancel(
        self, jobs: list[str] | None = None, sweep: str = "", *, confirm: bool = False
    ) -> str:
        """Cancel jobs, or the unfinished jobs of a sweep. Ask the user before you confirm.

        Args:
            jobs: their ids or names.
            sweep: a sweep's name instead.
            confirm: without it, the answer only says what would be cancelled.
        """
        if bool(jobs) == bool(sweep):
            raise ClientError("name either jobs or a sweep", hint="cancel(jobs=['7'])")
        if sweep:
            return self._cancel_sweep(sweep, confirm=confirm)
        named = [self._reading.named(handle) for handle in jobs or []]
        if not confirm:
            lines = [f"would cancel {job.id} {job.name!r}, {job.state}" for job in named]
            return answer(lines, "if the user agrees, the same call with confirm=true")
        lines = [
            f"job {job.id}: {'cancelled' if job.cancel() else f'stays {job.state}'}"
            for job in named
        ]
        return answer(lines, "a running job stops within its grace period")

    def fetch_artifacts(self, job: JobHandle, folder: str) -> str:
        """Fetch the files that a job left into a folder of this machine, each verified.

        Args:
            job: its id, its name, or `@last`.
            folder: an absolute path; it is made if need be, and other files in it stay.
        """
        named = self._reading.named(job)
        paths = named.download(folder)
        size = size_text(sum(path.stat().st_size for path in paths if path.is_file()))
        lines = [f"{counted(len(paths), 'file')}, {size}, in {folder}"]
        return answer([*lines, *(str(path) for path in paths[:20])], f"job({named.id})")

    def _cancel_sweep(self, name: str, *, confirm: bool) -> str:
        sweep = self._client().sweep(name)
        states = ", ".join(f"{count} {state}" for state, count in sweep.states().items())
        if not confirm:
            line = f"would cancel what has not ended of the sweep {sweep.name!r}: {states}"
            return answer([line], "if the user agrees, the same call with confirm=true")
        done = sweep.cancel()
        line = f"{counted(done.cancelled, 'job')} cancelled, {done.running} asked to end"
        return answer([line], f"sweep({sweep.name!r})")


def _fields(fields: Mapping[str, Any] | None, key: str) -> JobSpec:
    given = {**(fields or {}), **({"idempotency_key": key} if key else {})}
    # Its names and types are checked where they are read.
    return cast("JobSpec", given)
