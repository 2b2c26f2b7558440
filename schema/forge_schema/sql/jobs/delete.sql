-- Removes ended jobs by id, of one owner or of any, as `forge_delete_jobs` says.
SELECT job_id, became, needed_by
FROM forge_delete_jobs(%(job_ids)s::bigint[], %(owner)s::text, %(actor)s)
