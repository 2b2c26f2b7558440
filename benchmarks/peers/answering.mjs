// The loop of a queue's process: a line asks, a line answers.
import readline from "node:readline";

export const connection = {
  host: process.env.PGHOST,
  user: process.env.PGUSER,
  database: process.env.PGDATABASE,
};

export const seconds = () => Number(process.hrtime.bigint()) / 1e9;
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

// Jobs that differ in name, command and parameters, as those of a sweep do.
export const sweep = (jobs) =>
  Array.from({ length: jobs }, (_, n) => ({
    name: `sweep ${n}`,
    command: ["python", "train.py", "--lr", String(n / 1000)],
    parameters: { lr: n / 1000 },
  }));

export async function answer(verbs) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    const answered = (await verbs[asked.verb](asked)) ?? null;
    process.stdout.write(`${JSON.stringify(answered)}\n`);
  }
  process.exit(0);
}
