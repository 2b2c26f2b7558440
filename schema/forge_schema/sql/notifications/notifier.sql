-- How notifications leave.
SELECT smtp_url, sender, allow FROM notifier
