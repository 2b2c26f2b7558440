-- Those of the given uploads that an owner has not made.
SELECT sha256 FROM unnest(%(sha256s)s::text[]) AS wanted (sha256)
WHERE NOT EXISTS (
    SELECT FROM upload WHERE owner = %(owner)s AND upload.sha256 = wanted.sha256
)
