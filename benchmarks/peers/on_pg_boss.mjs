// pg-boss: fetch and complete, since its own worker polls twice a second at most; that worker is
// used for dispatch. Completed jobs stay in its table.
import PgBoss from "pg-boss";
import { answer, connection, median, pause, seconds, sweep } from "./answering.mjs";

const boss = new PgBoss({ ...connection, max: 20, supervise: false, schedule: false });
boss.on("error", (error) => process.stderr.write(`${error}\n`));
const AT_ONCE = { one: 1, sixteen: 16, best: 1 };
const BATCH = { one: 1, sixteen: 1, best: 100 };
const asJob = (data) => ({ name: "bench", data });
let started = false;

async function start() {
  if (!started) await boss.start();
  started = true;
}

async function prepare() {
  await start();
  await boss.createQueue("bench");
}

async function enqueue({ jobs, size }) {
  await start();
  const bodies = sweep(jobs);
  const began = seconds();
  for (let done = 0; done < jobs; done += size) {
    await boss.insert(bodies.slice(done, done + size).map(asJob));
  }
  return seconds() - began;
}

async function loop(batchSize) {
  let done = 0;
  for (;;) {
    const jobs = await boss.fetch("bench", { batchSize });
    if (!jobs.length) return done;
    await boss.complete("bench", jobs.map((job) => job.id));
    done += jobs.length;
  }
}

async function drain({ mode }) {
  await start();
  const began = seconds();
  const loops = Array.from({ length: AT_ONCE[mode] }, () => loop(BATCH[mode]));
  const done = (await Promise.all(loops)).reduce((a, b) => a + b, 0);
  return [done, seconds() - began];
}

async function dispatch({ times }) {
  await start();
  let heard = () => {};
  await boss.work("bench", { pollingIntervalSeconds: 0.5 }, async () => heard(seconds()));
  await pause(1000);
  const found = [];
  for (let n = 0; n < times; n += 1) {
    const at = new Promise((resolve) => (heard = resolve));
    const began = seconds();
    await boss.send(asJob(sweep(1)[0]));
    found.push(1000 * ((await at) - began));
    await pause(50);
  }
  await boss.offWork("bench");
  return median(found);
}

await answer({ prepare, enqueue, drain, dispatch });
