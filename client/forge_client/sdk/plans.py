"""Kept for later: schedules, templates, inputs and notifications."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Unpack

from forge_schema.model.job import RegisteredInput, Schedule, Template
from forge_schema.model.notifications import Delivery, KeptNotification, Notification, Notifier

from forge_client.backend import Backend
from forge_client.errors import InvalidInput
from forge_client.project.forge_toml import Project
from forge_client.project.request import nothing_to_keep, several
from forge_client.project.submit import planned_again
from forge_client.sdk.arguments import checked_verbs
from forge_client.sdk.job import Job
from forge_client.sdk.rows import Rows
from forge_client.sdk.sending import Sender, end_dry_run, packed, requests
from forge_client.sdk.spec import KeptSpec, RepeatedSpec


@checked_verbs
class Plans:
    """What `forge schedule`, `template`, `input` and `notification` do."""

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
        include: Sequence[str] | str = (),
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
            config: the name of a template, used instead of forge.toml.
            include: patterns of files to upload that would otherwise be left out.
            **spec: fields of the jobs, as `submit` takes them.

        Raises:
            ClientError: the expression or the time zone is invalid, or as for `submit`.
        """
        self.backend.check_schedule(name, cron, timezone=timezone)
        project = Project.read(Path(folder)).including(include)
        job = requests(project, [{"name": name, "command": command, **spec}], config=config)
        (whole,) = self.sender.uploaded(packed(project, Path(folder), job, config=config), job)
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

    def run_schedule(self, name: str) -> Job:
        """Submit a schedule's job now, also while it is paused. Its times stay.

        Raises:
            Conflict: its last job has not ended, and it may not overlap.
        """
        end_dry_run(lambda: planned_again(self.backend, self.backend.schedule(name).spec))
        return Job(self.backend, self.backend.run_schedule(name, at=datetime.now(UTC)))

    def remove_schedule(self, name: str) -> None:
        """Remove a schedule. The jobs that it has submitted stay."""
        self.backend.remove_schedule(name)

    def templates(self) -> Rows[Template]:
        """Return your templates, by name."""
        return Rows(self.backend.templates())

    def keep_template(
        self,
        name: str,
        /,
        folder: Path | str | None = None,
        command: Sequence[str] | str | None = None,
        **spec: Unpack[KeptSpec],
    ) -> Template:
        """Save the fields of a job under a name, for `submit(config=…)`; replace any before.

        Args:
            name: the config's name.
            folder: a folder whose forge.toml provides fields not given here; its files are not
                saved.
            command: the command, as for `submit`.
            **spec: fields of the job, as `submit` takes them.

        Raises:
            ClientError: a field is unknown or invalid, or none is given.
        """
        project = Project() if folder is None else Project.read(Path(folder))
        (request,) = requests(project, [{"command": command, **spec}])
        fields = request.fields()
        fields.pop("idempotency_key", None)
        if not any(fields.values()):
            raise nothing_to_keep(folder)
        self.backend.keep_template(name, fields)
        return self.backend.template(name)

    def remove_template(self, name: str) -> None:
        """Remove a template."""
        self.backend.remove_template(name)

    def inputs(self) -> Rows[RegisteredInput]:
        """Return your registered inputs, by name."""
        return Rows(self.backend.inputs())

    def keep_input(self, name: str, source: str) -> None:
        """Register the source of an input, for `submit(inputs={"data": name})`.

        Any before is replaced; jobs that were submitted with it keep its source.

        Args:
            name: letters, digits, dots, dashes and underscores.
            source: as in `submit`, such as `s3://bucket/set`.

        Raises:
            ClientError: the name or the source is malformed.
        """
        self.backend.keep_input(name, source)

    def remove_input(self, name: str) -> None:
        """Remove a registered input."""
        self.backend.remove_input(name)

    def notifications(self) -> Rows[Notification]:
        """Return the notifications that you may see, without their secrets."""
        return Rows(self.backend.notifications.listed())

    def add_notification(
        self,
        name: str,
        *,
        webhook: str | None = None,
        slack: str | None = None,
        email: str | None = None,
        events: Sequence[str] | str | None = None,
        query: str | None = None,
        everyone: bool | None = None,
        team: str | None = None,
        new_secret: bool = False,
        owner: str | None = None,
    ) -> KeptNotification:
        """Have messages sent about events, or change the notification of this name.

        What is left out of a change stays, and the answer says what changed. The secret by which a
        webhook is signed is in the answer only when it is new.

        Args:
            name: the notification's name.
            webhook: a URL for signed webhooks; a new notification has one of these three.
            slack: a URL that takes messages in the format of Slack.
            email: an address.
            events: `failed`, `stalled` and `approval` of a new one.
            query: which jobs, as for `jobs`; "" chooses all, as without one.
            everyone: whether to include all owners' jobs, for admins.
            team: a team that you see, to cover its jobs; "" covers the owner's alone again.
            new_secret: whether a webhook that was there gets a new secret.
            owner: whose notification it is, here and below: you, unless an admin names another.

        Raises:
            ClientError: the target, an event or the query is invalid.
        """
        targets = {"webhook": webhook, "slack": slack, "email": email}
        given = [(kind, target) for kind, target in targets.items() if target is not None]
        if len(given) > 1:
            raise InvalidInput(
                "a notification has one target", hint="give one of webhook, slack and email"
            )
        kind, target = given[0] if given else (None, None)
        wanted = {
            "kind": kind,
            "target": target,
            "events": None if events is None else several(events),
            "query": query,
            "everyone": everyone,
            "team": team,
            "new_secret": new_secret,
        }
        return self.backend.notifications.keep(name, wanted, owner=owner)

    def remove_notification(self, name: str, *, owner: str | None = None) -> None:
        """Remove a notification, and what it has not sent."""
        self.backend.notifications.remove(name, owner=owner)

    def test_notification(self, name: str, *, owner: str | None = None) -> Delivery:
        """Have a notification send a message soon; `delivery` tells how it went."""
        return self.backend.notifications.test(name, owner=owner)

    def delivery(self, delivery_id: str) -> Delivery:
        """Return a delivery of a notification."""
        return self.backend.notifications.delivery(delivery_id)

    def deliveries(
        self,
        *,
        name: str | None = None,
        state: str | None = None,
        before: str | None = None,
        count: int = 50,
    ) -> Rows[Delivery]:
        """Return deliveries, the newest first.

        Args:
            name: only those of this notification.
            state: only those that are `waiting`, `sent` or `failed`.
            before: only those before this one, by its id.
            count: the most deliveries, at most 1000.
        """
        deliveries = self.backend.notifications.deliveries(
            name=name, state=state, before=before, count=count
        )
        return Rows(deliveries)

    def retry_deliveries(
        self,
        ids: Sequence[str] | str | None = None,
        *,
        name: str | None = None,
        owner: str | None = None,
    ) -> int:
        """Send failed deliveries again: some, those of a notification, or all; return how many.

        An admin's are those of all owners, unless one is named.
        """
        return self.backend.notifications.retry(
            name=name, ids=None if ids is None else several(ids), owner=owner
        )

    def notifier(self) -> Notifier:
        """Return how notifications leave: the mail server and what is reachable, for admins."""
        return self.backend.notifications.notifier()

    def set_notifier(self, changes: Mapping[str, str | Sequence[str] | None]) -> Notifier:
        """Set `smtp_url`, `sender` or `allow`, for admins; what is left out stays."""
        allow = changes.get("allow")
        listed = {"allow": several(allow)} if isinstance(allow, str) else {}
        return self.backend.notifications.set_notifier({**changes, **listed})
