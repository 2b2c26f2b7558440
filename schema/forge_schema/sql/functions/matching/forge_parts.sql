-- What a worker must have before it can start a job, as three hashes: the image, the environment and
-- the bundle. One that the job does not need is NULL, and so is the array if it needs none. After
-- these come those of its inputs.
-- If `hashtext` changes with a version of Postgres, workers have no parts until they run jobs again.
CREATE OR REPLACE FUNCTION forge_parts(owner text, bundle_digest text, spec jsonb)
RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN coalesce(
            bundle_digest, spec ->> 'image', spec ->> 'image_tar', spec ->> 'inputs'
        ) IS NOT NULL THEN
            ARRAY[
                hashtext(coalesce(
                    'image ' || (spec ->> 'image'), 'tar ' || (spec ->> 'image_tar'),
                    'build ' || bundle_digest || (spec ->> 'dockerfile')
                )),
                -- It also depends on the image, and belongs to its owner.
                hashtext(
                    'environment ' || bundle_digest || (spec ->> 'requirements') || ' '
                    || coalesce(spec ->> 'image', spec ->> 'image_tar', spec ->> 'dockerfile', '')
                    || ' ' || owner
                ),
                hashtext('bundle ' || bundle_digest)
            ] || CASE WHEN spec ? 'inputs' THEN forge_input_parts(owner, spec -> 'inputs') END
    END
$$;
