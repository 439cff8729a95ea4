"""Uses servers of one replicated database with redis-py's support for Sentinel: redis_failover.py PORT PORT"""

import sys
import time

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

ports = [int(port) for port in sys.argv[1:]]
servers = [redis.Redis(port=port, decode_responses=True) for port in ports]
servers[0].execute_command("WEFT.PROMOTE")

sentinel = Sentinel([("127.0.0.1", port) for port in ports], decode_responses=True)
primary = sentinel.master_for("mymaster", retry=Retry(ConstantBackoff(0.1), 50))
assert sentinel.discover_master("mymaster") == ("127.0.0.1", ports[0])
primary.set("before", "here")
assert primary.wait(1, 1000) == 2

# The standby refuses writes, and reads until it is asked for what it has.
standby = redis.Redis(port=ports[1], decode_responses=True, single_connection_client=True)
for refused in (lambda: standby.set("key", 1), lambda: standby.get("before")):
    try:
        refused()
        raise AssertionError("a standby serves")
    except redis.exceptions.ReadOnlyError:
        pass
standby.readonly()
deadline = time.monotonic() + 30
while standby.get("before") != "here" and time.monotonic() < deadline:
    time.sleep(0.01)
assert standby.info("replication")["master_port"] == ports[0]

# The client finds each next primary without being told.
for number, port in enumerate(ports[1:] + ports):
    redis.Redis(port=port).execute_command("WEFT.PROMOTE")
    primary.set("key", number)
    assert primary.get("key") == str(number)
    assert primary.get("before") == "here"
    assert primary.connection_pool.get_master_address() == ("127.0.0.1", port)
