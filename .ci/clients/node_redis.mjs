// A handful of commands by node-redis and by ioredis: node node_redis.mjs PORT

import assert from "node:assert";
import { Redis } from "ioredis";
import { createClient } from "redis";

const port = Number(process.argv[2]);
const url = `redis://127.0.0.1:${port}`;

async function withNodeRedis(RESP) {
  const client = createClient({ url, RESP });
  await client.connect();
  await client.flushAll();
  assert.equal(await client.set("greeting", "hello", { EX: 100 }), "OK");
  assert.equal(await client.get("greeting"), "hello");
  await client.hSet("user", { name: "Ada", born: 1815 });
  assert.deepEqual({ ...(await client.hGetAll("user")) }, { name: "Ada", born: "1815" });
  await client.zAdd("board", [{ score: 2, value: "b" }, { score: 1.5, value: "a" }]);
  assert.deepEqual(await client.zRangeWithScores("board", 0, -1), [{ value: "a", score: 1.5 }, { value: "b", score: 2 }]);
  assert.deepEqual(await client.multi().incr("n").incrBy("n", 4).exec(), [1, 5]);
  const watching = client.duplicate();
  await watching.connect();
  await watching.watch("n");
  await client.set("n", "7");
  await assert.rejects(watching.multi().set("n", "8").exec());
  const id = await client.xAdd("events", "*", { kind: "made" });
  const read = await client.xRead([{ key: "events", id: "0" }]);
  assert.ok(JSON.stringify(read).includes(id) && JSON.stringify(read).includes("made"));
  await client.geoAdd("Sicily", [
    { longitude: 13.361389, latitude: 38.115556, member: "Palermo" },
    { longitude: 15.087269, latitude: 37.502669, member: "Catania" },
  ]);
  assert.ok(Math.abs((await client.geoDist("Sicily", "Palermo", "Catania", "km")) - 166.2742) < 0.001);
  assert.deepEqual(await client.geoSearch("Sicily", "Palermo", { radius: 100, unit: "km" }), ["Palermo"]);
  const [position] = await client.geoPos("Sicily", "Catania");
  assert.ok(Math.abs(Number(position.longitude) - 15.087269) < 0.00001);
  await client.pfAdd("visitors", ["a", "b", "a"]);
  assert.equal(await client.pfCount("visitors"), 2);
  await client.rPush("numbers", ["3", "1", "2"]);
  assert.deepEqual(await client.sort("numbers"), ["1", "2", "3"]);
  const script = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
  assert.equal(await client.eval(script, { keys: ["m"], arguments: ["3"] }), 3);
  let found = 0;
  for await (const keys of client.scanIterator()) {
    found += Array.isArray(keys) ? keys.length : 1;
  }
  assert.equal(found, await client.dbSize());
  const subscriber = client.duplicate();
  await subscriber.connect();
  const heard = new Promise((resolve) => subscriber.subscribe("news", resolve).then(() => client.publish("news", "x")));
  assert.equal(await heard, "x");
  await Promise.all([client, watching, subscriber].map((each) => each.close()));
  console.log(`node-redis, RESP${RESP}`);
}

async function withIoredis() {
  const client = new Redis(port);
  await client.flushall();
  client.defineCommand("add", { numberOfKeys: 1, lua: "return redis.call('INCRBY', KEYS[1], ARGV[1])" });
  assert.equal(await client.add("n", 2), 2);
  const replies = await client.pipeline().set("a", 1).get("a").lpush("a", 1).exec();
  assert.deepEqual(replies.slice(0, 2), [[null, "OK"], [null, "1"]]);
  assert.match(replies[2][0].message, /WRONGTYPE/);
  assert.deepEqual(await client.multi().hset("h", "f", 1).hincrby("h", "f", 2).exec(), [[null, 1], [null, 3]]);
  const waiting = client.duplicate();
  const popped = waiting.blpop("list", 10);
  await client.rpush("list", "x");
  assert.deepEqual(await popped, ["list", "x"]);
  const scanned = [];
  for await (const keys of client.scanStream({ match: "*" })) {
    scanned.push(...keys);
  }
  assert.deepEqual(scanned.sort(), ["a", "h", "n"]);
  await Promise.all([client.quit(), waiting.quit()]);
  console.log("ioredis");
}

await withNodeRedis(2);
await withNodeRedis(3);
await withIoredis();
