-- Sets the note of jobs by id, of one owner or of any, adds and removes tags, archives them or brings
-- them back. What is null is left as it is; an empty note is none. Idempotent: what is so already
-- is no event. A job that has not ended is not archived, and one never has more than `most` tags:
-- such a job is left alone.
-- Locks: job, shared, in the order of ids, so that none is removed meanwhile; then annotation, job_tag.
WITH wanted AS MATERIALIZED (
    SELECT id, owner FROM job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    ORDER BY id
    FOR KEY SHARE
),
judged AS MATERIALIZED (
    SELECT
        wanted.id, wanted.owner, had.note, coalesce(had.archived, false) AS archived,
        CASE
            WHEN %(archived)s::boolean
                AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = wanted.id) THEN 'unended'
            WHEN cardinality(%(add)s::text[]) > 0 AND %(most)s < (
                SELECT count(*) FROM (
                    SELECT tag FROM job_tag
                    WHERE job_id = wanted.id AND tag <> ALL(%(remove)s::text[])
                    UNION SELECT unnest(%(add)s::text[])
                ) AS of_it
            ) THEN 'full'
            ELSE 'changed'
        END AS became
    FROM wanted LEFT JOIN annotation AS had ON had.job_id = wanted.id
),
fit AS MATERIALIZED (
    SELECT * FROM judged WHERE became = 'changed' ORDER BY id
),
removed AS (
    DELETE FROM job_tag USING fit
    WHERE job_tag.job_id = fit.id AND job_tag.tag = ANY(%(remove)s::text[])
    RETURNING job_tag.job_id, job_tag.tag
),
added AS (
    INSERT INTO job_tag (job_id, tag, owner)
    SELECT fit.id, new.tag, fit.owner FROM fit CROSS JOIN unnest(%(add)s::text[]) AS new (tag)
    ORDER BY fit.id, new.tag
    ON CONFLICT DO NOTHING
    RETURNING job_id, tag
),
noted AS (
    INSERT INTO annotation AS had (job_id, note, archived)
    SELECT id, nullif(%(note)s::text, ''), coalesce(%(archived)s::boolean, false) FROM fit
    WHERE coalesce(%(note)s::text, note, '') <> coalesce(note, '')
        OR coalesce(%(archived)s::boolean, archived) <> archived
    ORDER BY id
    ON CONFLICT (job_id) DO UPDATE
        SET
            note = CASE WHEN %(note)s::text IS NULL THEN had.note ELSE excluded.note END,
            archived = coalesce(%(archived)s::boolean, had.archived)
    RETURNING job_id
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT
        forge_now(), %(actor)s, 'annotated', changed.job_id,
        jsonb_strip_nulls(jsonb_build_object(
            'tags_added', (SELECT array_agg(tag) FROM added WHERE added.job_id = changed.job_id),
            'tags_removed',
            (SELECT array_agg(tag) FROM removed WHERE removed.job_id = changed.job_id),
            'note', CASE WHEN changed.noted THEN %(note)s::text END,
            'archived', CASE WHEN changed.noted THEN %(archived)s::boolean END
        ))
    FROM (
        SELECT job_id, bool_or(noted) AS noted
        FROM (
            SELECT job_id, true AS noted FROM noted
            UNION ALL SELECT job_id, false FROM added
            UNION ALL SELECT job_id, false FROM removed
        ) AS of_each
        GROUP BY job_id
    ) AS changed
)
SELECT id AS job_id, became FROM judged
