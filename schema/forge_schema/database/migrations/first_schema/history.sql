-- What happened: outcomes, attempts, and the audit trail.

CREATE TABLE outcome (
    job_id bigint PRIMARY KEY,
    state state NOT NULL,
    reason reason NOT NULL,
    attempt smallint NOT NULL,
    token bigint,
    nonce uuid,
    exit_code integer,
    detail text,
    finished_at timestamptz NOT NULL,
    worker_id bigint,
    lane_id integer,
    ready_at timestamptz,
    claimed_at timestamptz,
    started_at timestamptz,
    checkpoint_at timestamptz,
    devices text[],
    gpu_seconds float8,
    energy_j float8,
    cost float8,
    cpu_seconds float8,
    peak_memory_mb integer,
    peak_vram_mb integer
);
CREATE INDEX outcome_times ON outcome USING brin (
    finished_at, claimed_at,
    ((finished_at AT TIME ZONE 'UTC')::date), ((claimed_at AT TIME ZONE 'UTC')::date)
);
CREATE INDEX outcome_unsuccessful ON outcome (reason, job_id) WHERE state <> 'succeeded';
CREATE INDEX outcome_worker ON outcome (worker_id, finished_at) WHERE worker_id IS NOT NULL;

CREATE TABLE attempt_row (
    job_id bigint NOT NULL,
    attempt smallint NOT NULL,
    rank smallint NOT NULL,
    finished_at timestamptz NOT NULL,
    token bigint NOT NULL,
    nonce uuid NOT NULL,
    worker_id bigint NOT NULL,
    lane_id integer NOT NULL,
    ready_at timestamptz NOT NULL,
    claimed_at timestamptz NOT NULL,
    started_at timestamptz,
    reason reason NOT NULL,
    exit_code integer,
    detail text,
    devices text[] DEFAULT '{}' NOT NULL,
    gpu_seconds float8 DEFAULT 0 NOT NULL,
    energy_j float8,
    cost float8,
    cpu_seconds float8,
    peak_memory_mb integer,
    peak_vram_mb integer,
    checkpoint_at timestamptz,
    PRIMARY KEY (job_id, attempt, rank, finished_at),
    CONSTRAINT counted CHECK (attempt >= 1),
    CONSTRAINT finished_after_claimed CHECK (finished_at >= claimed_at)
) PARTITION BY RANGE (finished_at);
CREATE TABLE attempt_row_default PARTITION OF attempt_row DEFAULT;
CREATE INDEX attempt_days ON attempt_row USING brin (
    ((finished_at AT TIME ZONE 'UTC')::date), ((claimed_at AT TIME ZONE 'UTC')::date)
);
CREATE INDEX attempt_interrupted ON attempt_row (finished_at) WHERE reason IN (
    'preempted', 'drained', 'worker_lost', 'gpu_fault', 'storage_failed', 'start_failed'
);
CREATE INDEX attempt_times ON attempt_row USING brin (finished_at, claimed_at);
CREATE INDEX attempt_worker ON attempt_row (worker_id, finished_at);

CREATE TABLE event (
    id bigint DEFAULT nextval('event_id') NOT NULL,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    job_id bigint,
    worker_id bigint,
    token bigint,
    detail jsonb,
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE TABLE event_default PARTITION OF event DEFAULT;
CREATE INDEX event_at ON event USING brin (at);
CREATE INDEX event_job ON event (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX event_worker ON event (worker_id, at) WHERE worker_id IS NOT NULL;

CREATE TABLE result (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    attempt smallint NOT NULL,
    values jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, token),
    CONSTRAINT values_object CHECK (jsonb_typeof(values) = 'object')
);

CREATE TABLE test_result (
    job_id bigint NOT NULL,
    token bigint NOT NULL,
    number integer NOT NULL,
    attempt smallint NOT NULL,
    suite text NOT NULL,
    name text NOT NULL,
    verdict verdict NOT NULL,
    seconds float8,
    message text,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, token, number),
    CONSTRAINT number_not_negative CHECK (number >= 0),
    CONSTRAINT seconds_not_negative CHECK (seconds >= 0)
);
CREATE INDEX test_result_at ON test_result USING brin (created_at);
