-- One template.
SELECT name, spec, updated_at FROM template WHERE owner = %(owner)s AND name = %(name)s
