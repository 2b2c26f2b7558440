"""Jobs kept for later: schedules and saved job configs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from forge_schema.model.job import Schedule, Template

from forge_client.backend import Backend
from forge_client.project.forge_toml import Project
from forge_client.sdk.rows import Rows
from forge_client.sdk.sending import Sender, packed, requests
from forge_client.sdk.spec import RepeatedSpec


class Plans:
    """What `forge schedule` and `forge templates` do."""

    backend: Backend
    sender: Sender

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
        include: Sequence[str] = (),
        **spec: Unpack[RepeatedSpec],
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
            include: patterns of files to upload that would otherwise be left out.
            **spec: fields of the jobs, as `submit` takes them.

        Raises:
            ClientError: the expression or the time zone is invalid, or as for `submit`.
        """
        self.backend.check_schedule(name, cron, timezone=timezone)
        project = Project.read(Path(folder)).including(include)
        job = requests(project, [{"name": name, "command": command, **spec}], config=config)
        (whole,) = self.sender.uploaded(packed(project, Path(folder), config=config), job)
        whole.pop("owner", None)
        return self.backend.keep_schedule(name, cron, whole, timezone=timezone, overlap=overlap)

    def schedules(self) -> Rows[Schedule]:
        """Return the schedules that you may see, by name."""
        return Rows(self.backend.schedules())

    def pause_schedule(self, name: str, *, paused: bool = True) -> None:
        """Pause a schedule, or resume it. Times that passed while it was paused are left out."""
        self.backend.pause_schedule(name, paused=paused)

    def resume_schedule(self, name: str) -> None:
        """Submit a paused schedule's jobs again, from its next time on."""
        self.backend.pause_schedule(name, paused=False)

    def remove_schedule(self, name: str) -> None:
        """Remove a schedule. The jobs that it has submitted stay."""
        self.backend.remove_schedule(name)

    def templates(self) -> Rows[Template]:
        """Return your saved job configs, by name."""
        return Rows(self.backend.templates())

    def keep_template(
        self,
        name: str,
        folder: Path | str | None = None,
        command: Sequence[str] | str | None = None,
        **spec: Unpack[RepeatedSpec],
    ) -> Template:
        """Save the fields of a job under a name, for `submit(config=…)`; replace any before.

        Args:
            name: the config's name.
            folder: a folder whose forge.toml provides fields not given here; its files are not
                saved.
            command: the command, as for `submit`.
            **spec: fields of the job, as `submit` takes them.

        Raises:
            ClientError: a field is unknown or invalid.
        """
        project = Project() if folder is None else Project.read(Path(folder))
        (request,) = requests(project, [{"command": command, **spec}])
        fields = request.fields()
        fields.pop("idempotency_key", None)
        self.backend.keep_template(name, fields)
        return self.backend.template(name)

    def remove_template(self, name: str) -> None:
        """Remove a saved job config."""
        self.backend.remove_template(name)
