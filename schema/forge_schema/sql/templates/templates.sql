-- The templates of an owner.
SELECT name, spec, updated_at FROM template WHERE owner = %(owner)s ORDER BY name
