"""Runs jobs of RQ and of Celery, whose queues the server keeps: redis_jobs.py PORT"""

import logging
import operator
import sys
import threading

import redis

port = int(sys.argv[1])
client = redis.Redis(port=port)
client.flushall()


def run_rq():
    from rq import Queue, SimpleWorker
    from rq.job import Job

    logging.getLogger("rq.worker").setLevel(logging.CRITICAL)
    queue = Queue(connection=client)
    done = [queue.enqueue(operator.mul, number, 2) for number in range(3)]
    failed = queue.enqueue(operator.truediv, 1, 0)

    # The worker waits for more when the queue is empty, and gets it while it waits.
    def enqueue_later():
        while not client.info("clients")["blocked_clients"]:
            pass
        done.append(queue.enqueue(operator.mul, 3, 2))

    later = threading.Thread(target=enqueue_later)
    later.start()
    SimpleWorker([queue], connection=client).work(max_jobs=5)
    later.join()
    for number, job in enumerate(done):
        assert Job.fetch(job.id, connection=client).return_value() == 2 * number
    assert failed.get_status(refresh=True) == "failed"
    print("RQ: 5 jobs")


def run_celery():
    from celery import Celery, group
    from celery.contrib.testing.worker import start_worker

    url = f"redis://127.0.0.1:{port}/1"
    app = Celery("jobs", broker=url, backend=url)
    app.conf.worker_hijack_root_logger = False

    @app.task
    def double(number):
        return 2 * number

    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="CRITICAL"):
        assert double.delay(4).get(timeout=30) == 8
        jobs = group(double.s(number) for number in range(5))
        assert jobs.apply_async().get(timeout=30) == [0, 2, 4, 6, 8]
    print("Celery: 6 jobs")


run_rq()
# Celery's transport takes a lock by a script.
if b"evalsha" in client.command_list():
    run_celery()
else:
    print("skipped: Celery, since the server has no scripts")
