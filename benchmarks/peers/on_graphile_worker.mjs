// graphile-worker: its own worker. It deletes jobs that succeeded, so it keeps no history.
import { Logger, run, runMigrations, runOnce } from "graphile-worker";
import pg from "pg";
import { answer, connection, median, pause, seconds, sweep } from "./answering.mjs";

const pgPool = new pg.Pool({ ...connection, max: 40 });
const logger = new Logger(() => () => {});
// It fetches one job at a time, so more at once is all it has instead of batches.
const AT_ONCE = { one: 1, sixteen: 16, best: 32 };
const ADD = `
  SELECT graphile_worker.add_jobs(array_agg(
    ('bench', body, null, null, null, null, null, null)::graphile_worker.job_spec
  )) FROM json_array_elements($1::json) AS body`;

async function enqueue({ jobs, size }) {
  const bodies = sweep(jobs);
  const began = seconds();
  for (let start = 0; start < jobs; start += size) {
    await pgPool.query(ADD, [JSON.stringify(bodies.slice(start, start + size))]);
  }
  return seconds() - began;
}

async function drain({ mode }) {
  let done = 0;
  const taskList = { bench: () => void (done += 1) };
  const began = seconds();
  await runOnce({ pgPool, logger, taskList, concurrency: AT_ONCE[mode] });
  return [done, seconds() - began];
}

async function dispatch({ times }) {
  let heard = () => {};
  const taskList = { bench: () => heard(seconds()) };
  const worker = await run({ pgPool, logger, taskList, concurrency: 1, noHandleSignals: true });
  await pause(1000);
  const found = [];
  for (let n = 0; n < times; n += 1) {
    const at = new Promise((resolve) => (heard = resolve));
    const began = seconds();
    await pgPool.query(ADD, [JSON.stringify(sweep(1))]);
    found.push(1000 * ((await at) - began));
    await pause(50);
  }
  await worker.stop();
  return median(found);
}

await answer({ prepare: () => runMigrations({ pgPool, logger }), enqueue, drain, dispatch });
