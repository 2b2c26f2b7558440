-- Records that an owner has uploaded the content of this SHA-256.
INSERT INTO upload (owner, sha256, created_at)
VALUES (%(owner)s, %(sha256)s, forge_now())
ON CONFLICT DO NOTHING
