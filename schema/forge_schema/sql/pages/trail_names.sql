-- Names of those whom actions of the audit trail name by their ids: the owners of keys, workers, former
-- ones too, and jobs.
SELECT 'key' AS kind, id, owner AS name FROM api_key WHERE id = ANY(%(keys)s)
UNION ALL
SELECT 'worker', id::text, name FROM worker WHERE id = ANY(%(workers)s::bigint[])
UNION ALL
SELECT 'worker', id::text, name FROM former_worker WHERE id = ANY(%(workers)s::bigint[])
UNION ALL
SELECT 'job', id::text, name FROM job WHERE id = ANY(%(jobs)s::bigint[])
