"""Train for an hour under a live view that 50 clients watch, and see that nothing grows.

    python benchmarks/soak.py [--minutes 60] [--clients 50] [--runs 200]

A real training writes its history and snapshots into a folder that `chiaro view` serves. Fifty
clients hold event streams of the list or of the training, drop them and come back; every second a
run is added, another removed, one is damaged or mended, a page is asked for and a half-open request
is left behind. Memory, descriptors, threads and processor time of the server are read from /proc
every few seconds, and so are those of the training. Memory and descriptors of both have to be flat:
the mean of the last third is at most 5 % or 16 MB (8 descriptors) above that of the middle third.
No answer may be a fault of the server (other than for the damaged run's own page), and no client
may miss a change: some seconds after the last one, each that watches the list knows the runs that
are there, no more and no less.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from chiaroscuro.artifacts import Embeddings, Run
from environment import save

LOOK = 5.0  # seconds between readings of /proc
SETTLE = 25.0  # seconds between the last change and the end of the clients
TRAINING = """
import os, sys
os.nice(5)  # the server is what is measured
from chiaroscuro.engine import read_settings, train
from chiaroscuro.engine.snapshots import snapshots
small = ["network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "epochs=100000",
         "saving.record=1", "data.source=digits(size=16, renderings=(1, 1), test=0.8)",
         "batch=64", "seed=3"]
train(read_settings("digits", small), sys.argv[1], [snapshots(rows=200, every=50)])
"""


class Server:
    """`chiaro view` in a process of its own."""

    def __init__(self, folder: Path):
        code = "import sys; from chiaroscuro.cli import main; sys.exit(main(sys.argv[1:]))"
        words = [sys.executable, "-c", code, "view", str(folder)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        parts = urllib.parse.urlsplit(self.process.stdout.readline().split()[1])
        self.port = int(parts.port or 0)
        self.token = urllib.parse.parse_qs(parts.query)["token"][0]

    def path(self, name: str, **query: str) -> str:
        return f"/{name}?{urllib.parse.urlencode({'token': self.token, **query})}"


def numbers(pid: int) -> dict[str, float]:
    """Memory in MB, descriptors, threads and processor seconds of a process."""
    own = Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (own / "status").read_text().splitlines())
    stat = (own / "stat").read_text().rsplit(")", 1)[1].split()
    return {
        "mb": int(status["VmRSS"].split()[0]) / 1024,
        "descriptors": len(list((own / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "cpu_seconds": (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"),
    }


class Client(threading.Thread):
    """Watches the list or a run, follows every change, and now and then drops the line."""

    def __init__(self, server: Server, seed: int, run: str | None, until: float):
        super().__init__(daemon=True)
        self.server, self.run_id, self.until = server, run, until
        self.rng = random.Random(seed)
        self.known: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        while time.time() < self.until:
            turn = time.time() + self.rng.uniform(5, 90)
            try:  # a turn that would end while the last changes settle goes on to the end
                self.watch(self.until if turn > self.until - SETTLE else turn)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if time.time() < self.until:
                    self.faults.append(f"{type(error).__name__}: {error}")
                    time.sleep(1)

    def watch(self, until: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        query = {"run": self.run_id} if self.run_id else {}
        connection.request("GET", self.server.path("events", **query))
        answer = connection.getresponse()
        if answer.status != 200:
            self.faults.append(f"events: {answer.status}")
        self.counts["streams"] += 1
        self.known = set()
        while time.time() < until and (line := answer.readline()):
            if not line.startswith(b"data: "):
                continue
            self.counts["events"] += 1
            news = json.loads(line[6:])
            if not self.run_id:
                self.known -= set(news["gone"])
                self.known |= {row["id"] for row in news["rows"]}
        answer.close()
        connection.close()


def a_run(folder: Path, seed: int) -> Run:
    """A small run by hand: settings, a history of 20 epochs, embeddings of 60 rows."""
    rng = np.random.default_rng(seed)
    run = Run.create(folder, {"seed": seed, "epochs": 20, "objective": "InfoNCE()"})
    for epoch in range(1, 21):
        entry = {"step": 10 * epoch, "epoch": epoch, "mean_loss": 5.0 / epoch, "seconds": epoch}
        run.append(entry, durable=False)
    h = rng.normal(size=(60, 8)).astype(np.float32)
    Embeddings(ids=np.arange(60), h=h, labels=np.arange(60) % 3).save(run.embeddings("all"))
    return run


def disturb(server: Server, folder: Path, second: int, faults: list[str]) -> None:
    """Do what a second brings: a run comes, one goes, one is damaged or mended, a page is read."""
    added = f"added-{second:06d}"
    a_run(folder / added, second)
    old = folder / f"added-{second - 20:06d}"
    if old.exists():
        shutil.rmtree(old)
    damaged = folder / "damaged" / "history.jsonl"
    damaged.write_text('{"epoch": "x"}\n' if second % 2 else '{"step": 1, "epoch": 1}\n')
    half = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    half.sendall(b"GET / HTTP/1.1\r\nHost: 127.")
    HALVES.append(half)
    if second % 5 == 0:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        connection.request("GET", server.path(""))
        answer = connection.getresponse()
        body = answer.read().decode()
        if answer.status != 200 or added not in body:
            faults.append(f"list in second {second}: {answer.status}, {added in body}")
        connection.close()
    if second % 30 == 0:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        connection.request("GET", server.path("report", run=identifier(added)))
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            faults.append(f"report in second {second}: {answer.status}")
        connection.close()


HALVES: list[socket.socket] = []


def identifier(name: str) -> str:
    import hashlib

    return hashlib.sha256(name.encode()).hexdigest()[:16]


def thirds(readings: list[dict[str, float]], name: str) -> tuple[float, float]:
    """Means of a reading over the middle and the last third."""
    values = [one[name] for one in readings]
    n = len(values) // 3
    return float(np.mean(values[n : 2 * n])), float(np.mean(values[2 * n :]))


def is_flat(memory: tuple[float, float], files: tuple[float, float]) -> bool:
    """Whether the last third is no more than the margin above the middle one."""
    return memory[1] <= max(1.05 * memory[0], memory[0] + 16) and files[1] <= files[0] + 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--runs", type=int, default=200, help="runs in the folder from the start")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs"
        for k in range(given.runs):
            a_run(folder / f"old-{k:04d}", k)
        a_run(folder / "damaged", 0)
        server = Server(folder)
        training = subprocess.Popen([sys.executable, "-c", TRAINING, str(folder / "training")])
        faults: list[str] = []
        try:
            result = soak(server, training, folder, given, faults)
        finally:
            training.send_signal(signal.SIGKILL)
            training.wait()
            server.process.terminate()
            server.process.wait()
    print(json.dumps(result, indent=1))
    name = "soak" if given.minutes >= 60 else "soak-short"
    save(name, result, f"python benchmarks/soak.py --minutes {given.minutes:g}")
    sys.exit(0 if result["flat"] and not result["faults"] else 1)


def soak(
    server: Server, training: Any, folder: Path, given: argparse.Namespace, faults: list[str]
) -> dict[str, Any]:
    """Watch for so many minutes; what was read and what went wrong."""
    while not (folder / "training" / "history.jsonl").exists():
        time.sleep(0.5)
    began = time.time()
    until = began + 60 * given.minutes
    watched = [identifier("training") if k % 3 == 0 else None for k in range(given.clients)]
    clients = [Client(server, k, run, until + SETTLE) for k, run in enumerate(watched)]
    for client in clients:
        client.start()
    readings, of_training = [numbers(server.process.pid)], [numbers(training.pid)]
    for second in itertools.count():
        if time.time() >= until:
            break
        disturb(server, folder, second, faults)
        while len(HALVES) > 5:
            HALVES.pop(0)  # dropped without a word; the server has to notice
        if time.time() - began > LOOK * len(readings):
            readings.append(numbers(server.process.pid))
            of_training.append(numbers(training.pid))
        time.sleep(max(0.0, began + second + 1 - time.time()))
    for client in clients:
        client.join(SETTLE + 60)
    there = {identifier(path.name) for path in folder.iterdir()}
    missed = [len(client.known ^ there) for client in clients if not client.run_id]
    faults += [f"{n} runs of the list missed or kept by a client" for n in missed if n]
    memory, files = thirds(readings, "mb"), thirds(readings, "descriptors")
    own_memory, own_files = thirds(of_training, "mb"), thirds(of_training, "descriptors")
    flat = is_flat(memory, files) and is_flat(own_memory, own_files)
    cpu = readings[-1]["cpu_seconds"] - readings[0]["cpu_seconds"]
    counts = sum((client.counts for client in clients), Counter())
    return {
        "minutes": given.minutes,
        "clients": given.clients,
        "runs": given.runs,
        "seconds_of_changes": second,
        "records_of_training": len(Run.open(folder / "training").history().records),
        "training_alive": training.poll() is None,
        "streams": counts["streams"],
        "events": counts["events"],
        "mb_middle_and_last_third": memory,
        "descriptors_middle_and_last_third": files,
        "clients_that_know_the_list": sum(not n for n in missed),
        "training_mb_middle_and_last_third": own_memory,
        "training_descriptors_middle_and_last_third": own_files,
        "threads_at_most": max(one["threads"] for one in readings),
        "share_of_a_core": cpu / (time.time() - began),
        "flat": flat,
        "faults": (faults + [fault for client in clients for fault in client.faults])[:20],
        "readings": [{k: round(v, 1) for k, v in one.items()} for one in readings],
        "readings_of_training": [{k: round(v, 1) for k, v in one.items()} for one in of_training],
    }


if __name__ == "__main__":
    main()
