-- Whether no sweeper has completed a tick within the last period. A clock may have been set back.
SELECT coalesce(swept_at NOT BETWEEN forge_now() - %(period)s::interval AND forge_now(), true) AS due
FROM sweeper
