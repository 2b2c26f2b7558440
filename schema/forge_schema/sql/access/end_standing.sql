-- Notes that an issuer gives a person no role here any more.
UPDATE standing SET ended_at = forge_now()
WHERE actor = %(actor)s AND (ended_at IS NULL OR ended_at < at)
