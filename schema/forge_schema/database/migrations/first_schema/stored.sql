-- What jobs wrote: uploads, checkpoints, artifacts, logs, metrics and samples.

CREATE TABLE upload (
    owner text NOT NULL,
    sha256 text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (owner, sha256),
    CONSTRAINT sha256_form CHECK (sha256 ~ '^[0-9a-f]{64}$')
);

CREATE TABLE checkpoint (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    number integer NOT NULL,
    attempt smallint NOT NULL,
    key text NOT NULL,
    files integer NOT NULL,
    bytes bigint NOT NULL,
    created_at timestamptz NOT NULL,
    rank smallint DEFAULT 0 NOT NULL,
    nodes smallint DEFAULT 1 NOT NULL,
    follows integer,
    step bigint,
    killed boolean DEFAULT false NOT NULL,
    trusted boolean DEFAULT false NOT NULL,
    passed_over smallint,
    PRIMARY KEY (job_id, token, number),
    CONSTRAINT nodes_positive CHECK (nodes >= 1),
    CONSTRAINT other_ranks_follow CHECK ((rank = 0) = (follows IS NULL)),
    CONSTRAINT sizes_not_negative CHECK (bytes >= 0 AND files >= 0)
);

CREATE TABLE beginning (
    job_id bigint NOT NULL,
    attempt smallint NOT NULL,
    from_attempt smallint NOT NULL,
    from_number integer NOT NULL,
    blamed boolean DEFAULT false NOT NULL,
    PRIMARY KEY (job_id, attempt)
);

CREATE TABLE artifact (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    path text NOT NULL,
    attempt smallint NOT NULL,
    key text NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    created_at timestamptz NOT NULL,
    target text,
    modified_at timestamptz,
    PRIMARY KEY (job_id, token, path),
    CONSTRAINT bytes_not_negative CHECK (bytes >= 0),
    CONSTRAINT sha256_form CHECK (sha256 ~ '^[0-9a-f]{64}$')
);

CREATE TABLE log_chunk (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    rank smallint NOT NULL,
    number integer NOT NULL,
    attempt smallint NOT NULL,
    key text NOT NULL,
    start bigint NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, token, rank, number),
    CONSTRAINT extent_sound CHECK (bytes > 0 AND start >= 0 AND number >= 0),
    CONSTRAINT sha256_form CHECK (sha256 ~ '^[0-9a-f]{64}$')
);

CREATE TABLE metric (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    rank smallint NOT NULL,
    number integer NOT NULL,
    at timestamptz NOT NULL,
    attempt smallint NOT NULL,
    step float8,
    values jsonb NOT NULL,
    PRIMARY KEY (job_id, token, rank, number, at)
) PARTITION BY RANGE (at);
CREATE TABLE metric_default PARTITION OF metric DEFAULT;
CREATE INDEX metric_at ON metric (at);

CREATE TABLE metric_span (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    rank smallint NOT NULL,
    span integer NOT NULL,
    lines integer NOT NULL,
    at timestamptz NOT NULL,
    step float8,
    values jsonb NOT NULL,
    PRIMARY KEY (job_id, token, rank, span)
) WITH (fillfactor = 50);
CREATE INDEX metric_span_whole ON metric_span (job_id, rank, token) WHERE span = -1;

CREATE TABLE sample (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    rank smallint NOT NULL,
    number integer NOT NULL,
    at timestamptz NOT NULL,
    attempt smallint NOT NULL,
    values jsonb NOT NULL,
    PRIMARY KEY (job_id, token, rank, number, at)
) PARTITION BY RANGE (at);
CREATE TABLE sample_default PARTITION OF sample DEFAULT;
CREATE INDEX sample_at ON sample (at);
