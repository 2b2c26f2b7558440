-- The jobs that owners submitted under idempotency keys.
SELECT asked.owner, asked.key, job.content_digest, job.id
FROM unnest(%(owners)s::text[], %(keys)s::text[]) AS asked (owner, key)
JOIN job ON job.owner = asked.owner AND job.idempotency_key = asked.key
