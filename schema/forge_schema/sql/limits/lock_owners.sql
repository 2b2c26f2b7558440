-- Locks all owners, which waits for lanes being made. Changes that concern several owners begin with
-- it, so that they lock them in one order.
SELECT owner FROM owner_quota ORDER BY owner FOR NO KEY UPDATE
