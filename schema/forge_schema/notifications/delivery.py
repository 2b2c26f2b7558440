"""Send one message about one or several events, by e-mail, to Slack or to a webhook."""

from uuid import UUID, uuid5

from forge_schema.database.pool import Row
from forge_schema.model.notifications import NotificationKind
from forge_schema.notifications.mail import MailServer, mail
from forge_schema.notifications.messages import line, url_of
from forge_schema.notifications.trying import NotSent
from forge_schema.notifications.webhook import encoded, post, signed, slack_body


def deliver(rows: list[Row]) -> None:
    """Send the message.

    Raises:
        NotSent: this try failed.
    """
    first, messages = rows[0], [row["message"] for row in rows]
    match first["kind"]:
        case NotificationKind.EMAIL:
            sentences = [*map(line, messages)]
            links = [url for message in messages if (url := url_of(message))]
            mail(_mail_server(first), first["target"], sentences, links, str(_id_of(rows)))
        case NotificationKind.SLACK:
            post(first["target"], encoded(slack_body(messages)), {}, allow=first["allow"])
        case _:
            body = encoded(first["message"])
            headers = signed(first["secret"], str(first["id"]), first["now"], body)
            post(first["target"], body, headers, allow=first["allow"])


def _id_of(rows: list[Row]) -> UUID:
    """Return the id of a message about several events: that of others is another one."""
    first, *others = (row["id"] for row in rows)
    return uuid5(first, ",".join(map(str, others))) if others else first


def _mail_server(row: Row) -> MailServer:
    if not row["smtp_url"] or not row["sender"]:
        raise NotSent("no mail server is set; an admin sets it with `forge notification setup`")
    return MailServer.of(row["smtp_url"], row["sender"])
