"""Takes lamps from the stock: python3 stock.py [PORT], with redis-py (pip install redis)."""

import sys

import redis

port = int(sys.argv[1]) if len(sys.argv) > 1 else 6380
client = redis.Redis(port=port, decode_responses=True)

# A procedure is called by its name, or as a function.
name, left = client.execute_command("TAKE", 7)
print(f"one {name} taken, {left} left")
assert client.fcall("take", 0, 7, 2) == [name, left - 2]
assert client.execute_command("TAKE", 7, 1_000_000) is None

try:
    client.execute_command("TAKE", "seven")
except redis.ResponseError as error:
    print(f"refused: {error}")
else:
    raise AssertionError("`seven` is no number")
