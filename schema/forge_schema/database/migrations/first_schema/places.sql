-- Where a job is until it ends: scheduled, held, ready or leased, and gangs that form.

CREATE TABLE scheduled (
    job_id bigint PRIMARY KEY,
    lane_id integer NOT NULL,
    nice smallint NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    failures smallint DEFAULT 0 NOT NULL,
    losses smallint DEFAULT 0 NOT NULL,
    preemptions smallint DEFAULT 0 NOT NULL,
    run_at timestamptz NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX scheduled_due ON scheduled (run_at);

CREATE TABLE held (
    job_id bigint PRIMARY KEY,
    lane_id integer NOT NULL,
    nice smallint NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    line text,
    parallel smallint,
    approval jsonb,
    CONSTRAINT approval_object CHECK (jsonb_typeof(approval) = 'object'),
    CONSTRAINT line_whole CHECK ((line IS NULL) = (parallel IS NULL)),
    CONSTRAINT parallel_positive CHECK (parallel >= 1)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX held_approval ON held (job_id) WHERE approval IS NOT NULL;
CREATE INDEX held_line ON held (line, job_id) WHERE line IS NOT NULL;

CREATE TABLE turn (
    job_id bigint PRIMARY KEY,
    line text NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX turn_line ON turn (line);

CREATE TABLE sweep_cap (
    line text PRIMARY KEY,
    parallel smallint NOT NULL,
    CONSTRAINT cap_positive CHECK (parallel >= 1)
);

CREATE TABLE ready (
    lane_id integer NOT NULL,
    nice smallint NOT NULL,
    job_id bigint NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    failures smallint DEFAULT 0 NOT NULL,
    losses smallint DEFAULT 0 NOT NULL,
    preemptions smallint DEFAULT 0 NOT NULL,
    ready_at timestamptz NOT NULL,
    passed_at timestamptz,
    parts integer[],
    PRIMARY KEY (lane_id, nice, job_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE lease (
    job_id bigint NOT NULL,
    rank smallint NOT NULL,
    token bigint DEFAULT nextval('lease_token') NOT NULL,
    nonce uuid DEFAULT gen_random_uuid() NOT NULL,
    worker_id bigint NOT NULL,
    lane_id integer NOT NULL,
    nice smallint NOT NULL,
    attempt smallint NOT NULL,
    failures smallint NOT NULL,
    losses smallint NOT NULL,
    preemptions smallint NOT NULL,
    ready_at timestamptz NOT NULL,
    claimed_at timestamptz NOT NULL,
    started_at timestamptz,
    deadline_at timestamptz,
    expires_at timestamptz NOT NULL,
    phase phase DEFAULT 'claimed' NOT NULL,
    progress float8,
    metrics integer DEFAULT 0 NOT NULL,
    asked asked,
    devices text[] DEFAULT '{}' NOT NULL,
    samples integer DEFAULT 0 NOT NULL,
    asked_at timestamptz,
    nodes smallint DEFAULT 1 NOT NULL,
    member jsonb,
    step smallint DEFAULT 0 NOT NULL,
    over jsonb,
    PRIMARY KEY (job_id, rank),
    CONSTRAINT progress_is_share CHECK (progress BETWEEN 0 AND 1)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX lease_gang ON lease (worker_id) WHERE nodes > 1;

CREATE TABLE slot (
    kind text NOT NULL,
    name text NOT NULL,
    n integer NOT NULL,
    job_id bigint,
    PRIMARY KEY (kind, name, n),
    CONSTRAINT slot_kind CHECK (kind IN ('queue_jobs', 'queue_gpus', 'owner_jobs', 'owner_gpus'))
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX slot_free ON slot (kind, name, n) WHERE job_id IS NULL;
CREATE INDEX slot_taken ON slot (job_id) WHERE job_id IS NOT NULL;

CREATE TABLE forming (
    job_id bigint PRIMARY KEY,
    pool text NOT NULL,
    lane_id integer NOT NULL,
    nice smallint NOT NULL,
    since timestamptz NOT NULL,
    deadline timestamptz NOT NULL,
    turns smallint DEFAULT 1 NOT NULL,
    rests_until timestamptz,
    grows smallint,
    expected_at timestamptz,
    CONSTRAINT deadline_after_since CHECK (deadline > since),
    CONSTRAINT expected_before_deadline CHECK (expected_at < deadline),
    CONSTRAINT grows_beyond_least CHECK (grows > 2),
    CONSTRAINT turns_positive CHECK (turns >= 1)
);
CREATE UNIQUE INDEX forming_pool ON forming (pool) WHERE rests_until IS NULL;

CREATE TABLE draft (
    worker_id bigint PRIMARY KEY,
    job_id bigint NOT NULL,
    lane_id integer NOT NULL,
    nice smallint NOT NULL,
    until timestamptz NOT NULL
);
