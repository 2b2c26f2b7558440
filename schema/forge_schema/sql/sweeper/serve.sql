-- Records that a server is there. If the last record is too old, all servers were away until now.
INSERT INTO sweeper AS s (id, served_at, served_since)
VALUES (1, forge_now(), forge_now())
ON CONFLICT (id) DO UPDATE SET
    served_at = forge_now(),
    served_since = CASE
        WHEN s.served_at >= forge_now() - %(gap)s::interval
            -- A clock may have been set back.
            THEN least(s.served_since, forge_now())
        ELSE forge_now()
    END
