-- Drafts workers for gangs that have waited for `patience`; each has a `turn` of that length.
-- Locks: see `forge_draft`.
SELECT forge_draft(%(patience)s, %(turn)s) AS drafted
