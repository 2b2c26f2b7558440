"""The Python SDK: submit jobs and hold them as futures."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from forge_schema.model.job import ListedJob, Schedule
from forge_schema.model.worker import WorkerInfo

from forge_client import settings
from forge_client.connection import connect
from forge_client.job import Job
from forge_client.project.bundle import Listing, scan
from forge_client.project.forge_toml import Project
from forge_client.project.ignore import sentence, unmatched_sentence
from forge_client.project.request import Request
from forge_client.project.submission import (
    LIMIT,
    configured,
    specs,
    upload,
    upload_images,
    with_images,
    with_requirements,
)


class Client:
    """A connection to Forge; without arguments, to what the environment or `forge up` names.

    Args:
        url: the server's URL, `https://…`; else FORGE_URL.
        api_key: the API key; else FORGE_API_KEY, or the content of FORGE_API_KEY_FILE.
        database_url: a `postgresql://` URL, for use without a server; else FORGE_DATABASE_URL.
        store_url: `s3://…` or `file://…`; else FORGE_STORE_URL.
        up_dir: the folder of a running `forge up`; else FORGE_DIR, else the latest one.
        owner: the owner of submitted jobs; else FORGE_OWNER, else the API key's owner, or without
            a server the login name.

    Raises:
        ClientError: nothing is configured and no `forge up` runs, or the settings are invalid.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        database_url: str | None = None,
        store_url: str | None = None,
        up_dir: Path | str | None = None,
        owner: str | None = None,
    ) -> None:
        server = {"url": url, "api_key": api_key}
        direct = {"database_url": database_url, "store_url": store_url, "dir": up_dir}
        self._settings = settings.load({**server, **direct, "owner": owner}, {})
        self.backend = connect(self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.backend.__exit__(None, None, None)

    def submit(
        self,
        folder: Path | str = ".",
        command: Sequence[str] | str | None = None,
        *,
        config: str | None = None,
        **spec: object,
    ) -> Job:
        """Submit a folder and a command as one job.

        Args:
            folder: the project; its forge.toml provides fields not given here.
            command: the command to run in it; a string is split as in a shell.
            config: the name of a saved job config, used instead of forge.toml.
            **spec: fields by their names in forge.toml, `[resources]` included, such as
                `name`, `gpus`, `memory="2GiB"`, `timeout="2h"`, `labels`, `env`.

        Raises:
            ClientError: the folder or a field is invalid, or nothing answers.
        """
        return self.submit_many([{"command": command, **spec}], folder=folder, config=config)[0]

    def submit_many(
        self,
        jobs: Iterable[Mapping[str, Any]],
        *,
        folder: Path | str = ".",
        config: str | None = None,
        limit: int = LIMIT,
    ) -> list[Job]:
        """Submit many jobs on one folder in one transaction: all of them or none.

        Args:
            jobs: the fields of each, as `submit` takes them.
            folder: the project, packed and uploaded once.
            config: the name of a saved job config, used instead of forge.toml.
            limit: the largest total size of the folder's files, in bytes.

        Raises:
            ClientError: as for `submit`.
        """
        whole = self._uploaded(jobs, Path(folder), config, limit)
        ids = self.backend.submit(whole) if whole else []
        return [Job(self.backend, job_id) for job_id in ids]

    def schedule(
        self,
        name: str,
        cron: str,
        folder: Path | str = ".",
        command: Sequence[str] | str | None = None,
        *,
        timezone: str = "UTC",
        overlap: bool = True,
        config: str | None = None,
        **spec: object,
    ) -> Schedule:
        """Have a folder and a command submitted at each time of a cron expression.

        The folder is packed and uploaded now: the jobs run what is in it now. A schedule of the
        same name is replaced.

        Args:
            name: the schedule's name.
            cron: minute, hour, day of the month, month and day of the week: `0 3 * * 1-5`.
            folder: the project, as for `submit`.
            command: the command, as for `submit`.
            timezone: the time zone of the expression, such as `Europe/Berlin`.
            overlap: whether to submit a job even if the last one is unfinished.
            config: the name of a saved job config, used instead of forge.toml.
            **spec: fields of the jobs, as `submit` takes them.

        Raises:
            ClientError: the expression or the time zone is invalid, or as for `submit`.
        """
        self.backend.check_schedule(name, cron, timezone=timezone)
        job = {"name": name, "command": command, **spec}
        (whole,) = self._uploaded([job], Path(folder), config, LIMIT)
        whole.pop("owner", None)
        return self.backend.keep_schedule(name, cron, whole, timezone=timezone, overlap=overlap)

    def schedules(self) -> list[Schedule]:
        """Return the schedules that you may see, by name."""
        return self.backend.schedules()

    def pause_schedule(self, name: str, *, paused: bool = True) -> None:
        """Pause a schedule, or resume it. Times that passed while it was paused are left out."""
        self.backend.pause_schedule(name, paused=paused)

    def remove_schedule(self, name: str) -> None:
        """Remove a schedule. The jobs that it has submitted stay."""
        self.backend.remove_schedule(name)

    def map(
        self,
        command: Sequence[str],
        values: Iterable[Mapping[str, object]],
        *,
        folder: Path | str = ".",
        **spec: object,
    ) -> list[Job]:
        """Submit one job for each set of values, replacing every `{name}` in the command.

        Args:
            command: such as `["python", "train.py", "--lr", "{lr}"]`.
            values: such as `[{"lr": 0.1}, {"lr": 0.01}]`.
            folder: the project.
            **spec: fields of every job, as `submit` takes them.

        Raises:
            ClientError: as for `submit`.
        """
        jobs = [{**spec, "command": _filled(command, chosen)} for chosen in values]
        return self.submit_many(jobs, folder=folder)

    def job(self, handle: int | str) -> Job:
        """Return an existing job.

        Args:
            handle: its id, its name, the beginning of its name, or `@last` for your newest job.

        Raises:
            ClientError: there is no such job, or several could be meant.
        """
        job_id = handle if isinstance(handle, int) else self.backend.job_id(handle)
        self.backend.job(job_id)
        return Job(self.backend, job_id)

    def jobs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        states: Sequence[str] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[ListedJob]:
        """Return jobs, newest first, of all owners unless one is given.

        Args:
            query: a filter as `forge ps` takes it, such as `"state:failed owner:me since:1d"`.
            owner: only this owner's jobs.
            states: only jobs in these states.
            before: only jobs with a lower id.
            count: the largest number of jobs, at most 1000.

        Raises:
            ClientError: the query is not a filter, or a state is none.
        """
        return self.backend.jobs(query, owner=owner, states=states, before=before, count=count)

    def workers(self) -> list[WorkerInfo]:
        """Return every worker."""
        return self.backend.workers()

    def _uploaded(
        self, jobs: Iterable[Mapping[str, Any]], root: Path, config: str | None, limit: int
    ) -> list[dict[str, Any]]:
        """Upload a folder for jobs, and return them as the queue takes them."""
        project = Project.read(root)
        listing = scan(root, include=project.include)
        for said in (sentence(listing.left_out), unmatched_sentence(listing.unmatched)):
            if said:
                warnings.warn(said, stacklevel=3)
        base = Request() if config else project.request()
        requests, images = with_images([base.changed(job) for job in jobs])
        if not requests:
            return []
        wanted = self._specs(requests, listing, config)
        self.backend.check(wanted)
        stored = upload(self.backend, listing, limit=limit)
        upload_images(self.backend, images)
        return [{**spec, **stored.fields} for spec in wanted]

    def _specs(
        self, requests: Sequence[Request], listing: Listing, config: str | None
    ) -> list[dict[str, Any]]:
        owner, root = self._settings.job_owner, listing.root
        if config is None:
            return specs(with_requirements(requests, listing), owner=owner, folder=root)
        kept = self.backend.template(config)
        whole = with_requirements(requests, listing, kept.spec)
        return [configured(one, kept, owner=owner, folder=root) for one in whole]


def _filled(command: Sequence[str], values: Mapping[str, object]) -> list[str]:
    # One pass, so that a value that looks like a placeholder is not replaced.
    names = re.compile("|".join(re.escape(f"{{{name}}}") for name in values) or r"(?!)")
    return [names.sub(lambda match: str(values[match[0][1:-1]]), word) for word in command]
