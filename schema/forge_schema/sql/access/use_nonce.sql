-- Uses up a signed request's nonce, if its timestamp is within the window.
WITH clock AS MATERIALIZED (
    SELECT
        forge_now() AS now,
        abs(extract(EPOCH FROM forge_now()) - %(sent)s::bigint) <= %(window)s::integer AS fresh
),
taken AS (
    INSERT INTO request_nonce (key_id, nonce, at)
    SELECT %(key_id)s, %(nonce)s, now FROM clock WHERE fresh
    ON CONFLICT DO NOTHING
    RETURNING nonce
)
SELECT fresh, EXISTS (SELECT FROM taken) AS taken FROM clock
