// Jobs of BullMQ, whose queue the server keeps: node bullmq.mjs PORT

import assert from "node:assert";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: null };
const queue = new Queue("sums", { connection });
const events = new QueueEvents("sums", { connection });
await events.waitUntilReady();

let failures = 0;
const worker = new Worker(
  "sums",
  async (job) => {
    if (job.name === "fails" && failures++ === 0) {
      throw new Error("once");
    }
    if (job.name === "all") {
      return Object.values(await job.getChildrenValues()).reduce((sum, value) => sum + value, 0);
    }
    return job.data.one + job.data.other;
  },
  { connection, concurrency: 4 },
);

const plain = await queue.addBulk([1, 2, 3].map((one) => ({ name: "add", data: { one, other: 10 } })));
const jobs = [
  ...plain,
  await queue.add("add", { one: 4, other: 10 }, { delay: 50 }),
  await queue.add("add", { one: 5, other: 10 }, { priority: 1 }),
  await queue.add("fails", { one: 6, other: 10 }, { attempts: 2, backoff: 10 }),
];
const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(events, 30000)));
assert.deepEqual(results, [11, 12, 13, 14, 15, 16]);
assert.equal(failures, 2);

const flow = new FlowProducer({ connection });
const child = (one) => ({ name: "add", queueName: "sums", data: { one, other: 0 } });
const tree = await flow.add({ name: "all", queueName: "sums", children: [child(1), child(2)] });
assert.equal(await tree.job.waitUntilFinished(events, 30000), 3);
assert.equal((await queue.getJobCounts("completed")).completed, 9);

await queue.upsertJobScheduler("every", { every: 20, limit: 2 }, { name: "add", data: { one: 1, other: 1 } });
while ((await queue.getJobCounts("completed")).completed < 11);
await worker.close();
await Promise.all([flow.close(), events.close(), queue.close()]);
console.log("BullMQ: 11 jobs");
