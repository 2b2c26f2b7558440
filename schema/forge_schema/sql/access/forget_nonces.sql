-- Deletes the nonces of requests whose timestamps are now too old to be accepted.
DELETE FROM request_nonce WHERE at < forge_now() - %(older)s::interval
