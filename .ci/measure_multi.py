"""MULTI of four SET, which redis-benchmark cannot send: transactions for each second of the server's processor time, and by
the clock, of Redis and the server in turns. `.ci/measure-server` calls it with the two servers, each as PORT:PROCESS, and
`.ci/measure-server-instructions` with one of them, and with one run.
"""

import argparse
import os
import random
import socket
import sys
import time

CONNECTIONS = 50
REPLY = b"+OK\r\n" + 4 * b"+QUEUED\r\n" + b"*4\r\n" + 4 * b"+OK\r\n"


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def used(process):
    fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def transaction(numbers):
    keys = [b"key:%012d" % numbers.randrange(100_000) for _ in range(4)]
    return command(b"MULTI") + b"".join(command(b"SET", key, b"xxx") for key in keys) + command(b"EXEC")


def measure(port, process, pipelined, transactions):
    numbers = random.Random(1)
    batches = [b"".join(transaction(numbers) for _ in range(pipelined)) for _ in range(200)]
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    before, begun, done, sent = used(process), time.time(), 0, 0
    while done < transactions:
        for client in sockets:
            client.sendall(batches[sent % len(batches)])
            sent += 1
        for client in sockets:
            left = pipelined * len(REPLY)
            while left > 0:
                received = client.recv(left)
                if not received:
                    sys.exit("the server has closed a connection")
                left -= len(received)
            done += pipelined
    return done / (used(process) - before), done / (time.time() - begun)


parser = argparse.ArgumentParser()
parser.add_argument("--run", nargs=2, type=int, metavar=("PIPELINED", "TRANSACTIONS"), action="append")
parser.add_argument("servers", nargs="+", metavar="PORT:PROCESS")
arguments = parser.parse_args()
servers = [tuple(map(int, server.split(":"))) for server in arguments.servers]
for pipelined, transactions in arguments.run or [(1, 40_000), (16, 150_000)]:
    for name, (port, process) in zip(("Redis", "Weft"), servers):
        by_cpu, by_clock = measure(port, process, pipelined, transactions)
        print(f"{name:6} {'multi':8} by {pipelined:2}: {by_clock:8.0f} a second, {by_cpu:8.0f} for each CPU-second")
