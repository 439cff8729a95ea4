// Takes lamps from the stock: node stock.mjs [PORT], with node-redis (npm install redis).

import assert from "node:assert";
import { createClient } from "redis";

const port = Number(process.argv[2] ?? 6380);
const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();

// A procedure is called by its name, or as a function.
const [name, left] = await client.sendCommand(["TAKE", "7"]);
console.log(`one ${name} taken, ${left} left`);
assert.deepEqual(await client.fCall("take", { arguments: ["7", "2"] }), [name, left - 2]);
assert.equal(await client.sendCommand(["TAKE", "7", "1000000"]), null);
await assert.rejects(client.sendCommand(["TAKE", "seven"]), /must be an integer/);

await client.quit();
