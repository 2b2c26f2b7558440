-- The leases of jobs long past their time limit whose workers renew them and never end them; not of
-- those that only have something left to store.
SELECT job_id, token, nonce
FROM lease
WHERE asked = 'timeout' AND phase <> 'finishing'
    AND deadline_at < forge_now() - %(patience)s::interval
ORDER BY job_id
LIMIT %(count)s
