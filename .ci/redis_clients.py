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
