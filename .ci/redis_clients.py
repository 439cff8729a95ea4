"""Uses the server as a program with redis-py does: redis_clients.py PORT"""

import sys
import threading

import redis

port = int(sys.argv[1])
for protocol in (2, 3):
    client = redis.Redis(port=port, protocol=protocol, decode_responses=True)
    client.flushall()

    assert client.set("session", "x", ex=100, nx=True) is True
    assert client.set("session", "y", nx=True) is None
    assert 0 < client.ttl("session") <= 100
    assert client.incrby("visits", 5) == 5

    client.hset("user:1", mapping={"name": "Ada", "age": 36})
    assert client.hgetall("user:1") == {"name": "Ada", "age": "36"}
    client.zadd("board", {"ada": 3.5, "bob": 1})
    assert client.zrange("board", 0, -1, withscores=True)[1][1] == 3.5
    client.rpush("jobs", "a", "b", "c")
    assert client.lpop("jobs", 2) == ["a", "b"]
    client.sadd("tags", "x", "y")
    assert client.smembers("tags") == {"x", "y"}
    assert set(client.scan_iter(count=2)) == {"session", "visits", "user:1", "board", "jobs", "tags"}

    # A transaction that redis-py runs again if a watched key changes.
    def move(pipe):
        left = int(pipe.get("visits"))
        pipe.multi()
        pipe.set("visits", left - 1)
        pipe.incr("moved")

    client.transaction(move, "visits")
    assert client.mget("visits", "moved") == ["4", "1"]

    # A rate limiter.
    for call in range(1, 4):
        with client.pipeline() as pipe:
            pipe.incr("calls")
            pipe.expire("calls", 60, nx=True)
            calls, _ = pipe.execute()
        assert calls == call

    # Scripts: as a function of redis-py, which loads it when the server does not know it; in a transaction; by functions.
    client.script_flush()
    transfer = client.register_script("""
        local left = tonumber(redis.call('GET', KEYS[1]) or 0) - tonumber(ARGV[1])
        if left < 0 then return redis.error_reply('POOR only ' .. left + ARGV[1] .. ' left') end
        redis.call('SET', KEYS[1], left)
        return {left, redis.call('INCRBY', KEYS[2], ARGV[1])}""")
    client.mset({"from": 10, "to": 0})
    assert transfer(keys=["from", "to"], args=[3]) == [7, 3]
    with client.pipeline() as pipe:
        transfer(keys=["from", "to"], args=[2], client=pipe)
        pipe.get("from")
        assert pipe.execute() == [[5, 5], "5"]
    try:
        transfer(keys=["from", "to"], args=[6])
    except redis.ResponseError as error:
        assert str(error) == "POOR only 5 left", error
    else:
        raise AssertionError("a transfer of more than there is is refused")
    assert client.script_exists(transfer.sha) == [True]
    assert client.eval("return {KEYS[1], ARGV[1], 1.9, false, cjson.encode({a = 1})}", 1, "k", "v") == ["k", "v", 1, None, '{"a":1}']
    assert client.eval_ro("return redis.call('GET', KEYS[1])", 1, "from") == "5"
    client.function_load(
        "#!lua name=shop\nredis.register_function('price', function(keys, args) return args[1] * 2 end)", replace=True
    )
    assert client.fcall("price", 0, 21) == 42
    assert len(client.function_list()) == 1 and client.function_delete("shop")

    # A lock, which redis-py releases and extends by scripts.
    lock = client.lock("lock", timeout=10)
    assert lock.acquire(blocking=False) and not client.lock("lock").acquire(blocking=False)
    assert lock.extend(20) and lock.reacquire()
    lock.release()
    assert client.exists("lock") == 0

    # A rate limiter with a window that slides: three calls in ten seconds.
    limit = client.register_script("""
        local time = redis.call('TIME')
        local now = time[1] * 1000000 + time[2]
        redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[1] * 1000000)
        if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
        redis.call('ZADD', KEYS[1], now, now .. '-' .. math.random(1000000))
        redis.call('PEXPIRE', KEYS[1], ARGV[1] * 1000)
        return 1""")
    assert [limit(keys=["window"], args=[10, 3]) for _ in range(5)] == [1, 1, 1, 0, 0]

    # A job queue, in the manner of BullMQ: packed arguments, a hash for the job, a list and a sorted set.
    add_job = client.register_script("""
        local job = cmsgpack.unpack(cmsgpack.pack({ARGV[1], cjson.decode(ARGV[2])}))
        local id = redis.call('INCR', KEYS[1] .. ':id')
        redis.call('HMSET', KEYS[1] .. ':' .. id, 'name', job[1], 'data', cjson.encode(job[2].data), 'delay', job[2].delay or 0)
        if job[2].delay then
            redis.call('ZADD', KEYS[1] .. ':delayed', job[2].delay, id)
        else
            redis.call('LPUSH', KEYS[1] .. ':wait', id)
        end
        return id .. ''""")
    assert add_job(keys=["bull"], args=["mail", '{"data":{"to":"a/b"}}']) == "1"
    assert add_job(keys=["bull"], args=["mail", '{"data":{},"delay":5}']) == "2"
    assert client.lrange("bull:wait", 0, -1) == ["1"] and client.zscore("bull:delayed", "2") == 5
    assert client.hgetall("bull:1") == {"name": "mail", "data": '{"to":"a\\/b"}', "delay": "0"}

    try:
        client.lpush("session", "x")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE"), error
    else:
        raise AssertionError("a push to a string is refused")
    # A worker that waits for a job, while another client sends one.
    def push_when_blocked():
        other = redis.Redis(port=port, protocol=protocol)
        while not other.info("clients")["blocked_clients"]:
            pass
        other.rpush("queue", "job")

    pusher = threading.Thread(target=push_when_blocked)
    pusher.start()
    assert [*client.blpop(["urgent", "queue"], timeout=30)] == ["queue", "job"]
    pusher.join()
    assert client.blmove("queue", "done", timeout=0.01) is None
    assert client.bzpopmin("board", timeout=1)[1] == "bob"

    # Subscriptions.
    with client.pubsub() as pubsub:
        pubsub.subscribe("news")
        pubsub.psubscribe("n*")
        kinds = [pubsub.get_message(timeout=10)["type"] for _ in range(2)]
        assert kinds == ["subscribe", "psubscribe"], kinds
        assert client.publish("news", "hello") == 2
        messages = [pubsub.get_message(timeout=10) for _ in range(2)]
        assert {message["type"] for message in messages} == {"message", "pmessage"}, messages
        assert all(message["data"] == "hello" for message in messages)
        client.config_set("notify-keyspace-events", "KEA")
        pubsub.subscribe("__keyevent@0__:set")
        assert pubsub.get_message(timeout=10)["type"] == "subscribe"
        client.set("noticed", 1)
        assert pubsub.get_message(timeout=10)["data"] == "noticed"
        client.config_set("notify-keyspace-events", "")

    # A stream, with a group of consumers.
    client.xgroup_create("events", "group", mkstream=True)
    first = client.xadd("events", {"kind": "created"}, maxlen=100)
    client.xadd("events", {"kind": "paid"})
    assert client.xlen("events") == 2 and client.xrange("events")[0][0] == first
    read = client.xreadgroup("group", "worker", {"events": ">"}, count=10, block=1000)
    entries = read["events"][0] if isinstance(read, dict) else read[0][1]
    assert [fields["kind"] for _, fields in entries] == ["created", "paid"], read
    assert client.xpending("events", "group")["pending"] == 2
    assert client.xack("events", "group", *[entry for entry, _ in entries]) == 2
    assert client.xinfo_groups("events")[0]["pending"] == 0
    assert not client.xread({"events": "$"}, block=10)

    assert client.info()["redis_version"] and client.client_list() and client.config_get("save")
    print(f"RESP{protocol}: as expected")
