-- Uses up a signed request's nonce, if its timestamp is within the window. Its commit does not wait
-- for the disk: if the request then changes anything, that commit waits, and for this one too.
WITH clock AS MATERIALIZED (
    SELECT
        forge_now() AS now,
        extract(EPOCH FROM forge_now())::float8 - %(sent)s::bigint AS age_s,
        abs(extract(EPOCH FROM forge_now()) - %(sent)s::bigint) <= %(window)s::integer AS fresh,
        set_config('synchronous_commit', 'off', true)
),
taken AS (
    INSERT INTO request_nonce (key_id, nonce, at)
    SELECT %(key_id)s, %(nonce)s, now FROM clock WHERE fresh
    ON CONFLICT DO NOTHING
    RETURNING nonce
)
SELECT age_s, fresh, EXISTS (SELECT FROM taken) AS taken FROM clock
