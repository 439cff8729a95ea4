"""Uses the server as a program with redis-py does: redis_clients.py PORT"""

import sys

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
    assert client.info()["redis_version"] and client.client_list() and client.config_get("save")
    print(f"RESP{protocol}: as expected")
