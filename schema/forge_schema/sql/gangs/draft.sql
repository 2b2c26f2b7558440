-- Drafts workers for gangs that have waited for `patience`, for a `turn` of that length the first
-- time. Forms the gangs for which there are enough idle workers.
-- Locks: see `forge_draft` and `forge_form`.
SELECT forge_draft(%(patience)s, %(turn)s) AS drafted, forge_form() AS formed
