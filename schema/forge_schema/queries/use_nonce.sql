-- Takes a signed request's nonce; no row when it was taken before.
INSERT INTO request_nonce (key_id, nonce, at) VALUES (%(key_id)s, %(nonce)s, forge_now())
ON CONFLICT DO NOTHING
RETURNING nonce
