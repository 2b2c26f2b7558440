-- The registered inputs of an owner.
SELECT name, source, updated_at FROM registered_input WHERE owner = %(owner)s ORDER BY name
