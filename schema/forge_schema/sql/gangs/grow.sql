-- Has runs end that have fewer machines than they may, and could go on with more.
-- Locks: see `forge_grow`.
SELECT forge_grow(%(computed)s, %(waited)s, %(turn)s, %(actor)s) AS grown
