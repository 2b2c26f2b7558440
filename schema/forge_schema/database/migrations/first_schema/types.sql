-- The words of states, kinds and reasons, and the sequences that tables share.
CREATE TYPE asked AS ENUM ('cancelled', 'preempted', 'timeout', 'ended');
CREATE TYPE command AS ENUM ('drain', 'stop');
CREATE TYPE dependency_kind AS ENUM ('after', 'after_ok', 'after_any');
CREATE TYPE job_kind AS ENUM ('command', 'test', 'benchmark', 'custom');
CREATE TYPE phase AS ENUM ('claimed', 'preparing', 'running', 'stopping', 'finishing');
CREATE TYPE reason AS ENUM ('succeeded', 'exit_code', 'oom', 'disk_full', 'timeout', 'stalled',
    'bundle_corrupt', 'image_missing', 'start_failed', 'preflight_failed', 'storage_failed',
    'gpu_fault', 'worker_lost', 'preempted', 'drained', 'run_ended', 'cancelled',
    'dependency_failed');
CREATE TYPE state AS ENUM ('scheduled', 'held', 'ready', 'running', 'succeeded', 'failed',
    'cancelled', 'dead');
CREATE TYPE target AS ENUM ('auto', 'worker', 'local');
CREATE TYPE verdict AS ENUM ('passed', 'failed', 'error', 'skipped');
CREATE TYPE worker_kind AS ENUM ('ephemeral', 'persistent');
CREATE TYPE worker_status AS ENUM ('connecting', 'idle', 'busy', 'constrained', 'draining',
    'offline');
CREATE SEQUENCE lease_token AS bigint;
CREATE SEQUENCE event_id AS bigint;
