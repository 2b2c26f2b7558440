-- How notifications leave.
SELECT smtp_url, sender, private FROM notifier
