-- Forgets the nonces of requests whose timestamps are refused by now.
DELETE FROM request_nonce WHERE at < forge_now() - %(older)s::interval
