"""Kill training at 50 moments, resume it, and compare every byte; then damage 1000 checkpoints.

    python benchmarks/kill.py

A small residual network learns wandering digits with AdamW and an average of its weights, and saves
every second step. It is killed with SIGKILL after a time drawn at random, or while the temporary
folder of a checkpoint is on the disk; with batches prepared in the process or by 2 workers, on 1
rank or on 2 (of which one is killed, or both). Resumed, with the other number of workers, it has to
end with the arrays of the run that nobody disturbed: weights, average, moments, random state.

Then copies of a checkpoint are damaged: bits, lengths, files, names, a manifest made to match. Each
has to be refused, unless its bytes are those of the good one after all.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from chiaroscuro.artifacts import Run, checkpoints
from chiaroscuro.engine import open_training_data, read_settings, train
from chiaroscuro.errors import ChiaroError
from environment import save

SETTINGS = [
    "epochs=6",
    "batch=64",
    "seed=3",
    "data.source=digits(size=16, renderings=(1, 1), test=0.8)",
    "network.encoder=ResNet(9, 0.125, stem='strided')",
    "network.average=0.9",
    "schedule.warmup=1",
    "saving.every=2",
    "saving.record=1",
]
SECONDS = 300
"""A rank that is not done by then hangs."""


# ---- processes ----


class Training:
    """A training in processes of its own, forked from this one, as torchrun would start them."""

    def __init__(self, out: Path, workers: int, ranks: int):
        self.out = out
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.alive = {rank: self._fork(rank, workers, ranks, port) for rank in range(ranks)}
        self.status: dict[int, int] = {}

    def _fork(self, rank: int, workers: int, ranks: int, port: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            with (self.out.parent / f"{self.out.name}.log").open("a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            os.environ |= {"WORLD_SIZE": str(ranks), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            settings = read_settings("digits", [*SETTINGS, f"data.workers={workers}"])
            train(settings, self.out, resume=True)
            status = 0
        finally:
            os._exit(status)
        return 0

    def running(self) -> bool:
        """Whether every rank is still there."""
        for rank, pid in list(self.alive.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.status[rank] = os.waitstatus_to_exitcode(status)
                del self.alive[rank]
        return not self.status

    def kill(self, ranks: list[int]) -> bool:
        """SIGKILL to these ranks; the others have time to notice. Whether it hit a live one."""
        hit = self.running()
        for rank in ranks:
            if rank in self.alive:
                os.kill(self.alive[rank], signal.SIGKILL)
        self.wait(10)
        for pid in self.alive.values():
            os.kill(pid, signal.SIGKILL)
        self.wait(10)
        return hit and any(status == -signal.SIGKILL for status in self.status.values())

    def wait(self, seconds: float = SECONDS) -> bool:
        """Whether all ranks end well in this time."""
        end = time.monotonic() + seconds
        while self.alive and time.monotonic() < end:
            self.running()
            time.sleep(0.005)
        return not self.alive and not any(self.status.values())


# ---- the moments ----


def in_a_save(training: Training, luck: random.Random, duration: float) -> bool:
    """Wait until the temporary folder of a checkpoint is there, of a random one; then kill."""
    folder, wanted = training.out / "checkpoints", luck.randrange(1, 12)
    seen: set[str] = set()
    while training.running():
        names = os.listdir(folder) if folder.is_dir() else []
        seen |= {name for name in names if name.startswith(".saving-")}
        if len(seen) >= wanted:
            training.kill([0])
            return any(name.startswith(".saving-") for name in os.listdir(folder))
        time.sleep(0.0005)
    return False


def at_any_time(training: Training, luck: random.Random, duration: float) -> bool:
    """Kill one of the ranks, or all, after a random part of the time that a training takes."""
    end = time.monotonic() + luck.uniform(0, duration)
    while training.running() and time.monotonic() < end:
        time.sleep(0.001)
    ranks = list(training.alive)
    return training.kill(luck.choice([ranks, *([rank] for rank in ranks)]))


MOMENTS = {"at any time": at_any_time, "in a save": in_a_save}


def kills(folder: Path, count: int) -> dict[str, Any]:
    """Every case killed once, resumed, and compared with the run that was left alone."""
    wholes: dict[int, checkpoints.Checkpoint] = {}
    durations: dict[tuple[int, int], float] = {}
    for ranks in (1, 2):
        for workers in (0, 2):
            out, start = folder / f"whole-{ranks}-{workers}", time.monotonic()
            if not Training(out, workers, ranks).wait():
                raise SystemExit(f"the undisturbed run failed; see {out}.log")
            durations[ranks, workers] = time.monotonic() - start
            whole = wholes.setdefault(ranks, final(out))
            if different(whole, final(out)):
                raise SystemExit(
                    f"{workers} workers gave other weights than none, on {ranks} ranks"
                )
    found: list[dict[str, Any]] = []
    missed = 0
    for case in range(10 * count):
        if len(found) == count:
            break
        luck = random.Random(case)
        moment = luck.choice(list(MOMENTS))
        ranks, workers = luck.choice([1, 1, 2]), luck.choice([0, 2])
        out = folder / f"case-{case}"
        if not MOMENTS[moment](Training(out, workers, ranks), luck, durations[ranks, workers]):
            missed += 1  # it had ended, or the save had
            shutil.rmtree(out, ignore_errors=True)
            continue
        left = checkpoints.latest_good(out / "checkpoints").checkpoint
        resumed = Training(out, 2 - workers, ranks).wait()
        apart = different(wholes[ranks], final(out)) if resumed else ["it did not end"]
        found.append(
            {
                "moment": moment,
                "ranks": ranks,
                "workers": workers,
                "resumed_from": None if left is None else left.step,
                "different": apart,
            }
        )
        print(f"{len(found)} of {count}: {found[-1]}", flush=True)
        if not apart:
            shutil.rmtree(out)
    kinds = Counter(f"{f['moment']}, {f['ranks']} rank(s), {f['workers']} workers" for f in found)
    return {
        "killed": len(found),
        "bitwise_equal": sum(not f["different"] for f in found),
        "by_kind": dict(sorted(kinds.items())),
        "resumed_from_step": sorted(f["resumed_from"] or 0 for f in found),
        "not_equal": [f for f in found if f["different"]],
        "came_too_late_and_drawn_again": missed,
        "arrays_compared": {r: len(whole.arrays) for r, whole in wholes.items()},
        "steps": wholes[1].step,
    }


def final(out: Path) -> checkpoints.Checkpoint:
    """The last good checkpoint."""
    found = checkpoints.latest_good(Run.open(out).checkpoints).checkpoint
    if found is None:
        raise SystemExit(f"no good checkpoint in {out}")
    return found


def different(one: checkpoints.Checkpoint, two: checkpoints.Checkpoint) -> list[str]:
    """What differs, by name: step, state, or a byte of an array."""
    names = sorted(one.arrays.keys() ^ two.arrays.keys())
    names += [
        name
        for name in one.arrays.keys() & two.arrays.keys()
        if one.arrays[name].tobytes() != two.arrays[name].tobytes()
    ]
    names += ["step"] * (one.step != two.step) + ["state"] * (one.state != two.state)
    return names


# ---- damage ----

Damage = Callable[[Path, Path, random.Random], None]


def flip(path: Path, other: Path, luck: random.Random) -> None:
    file = luck.choice(sorted(path.iterdir()))
    data = bytearray(file.read_bytes())
    data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
    file.write_bytes(data)


def truncate(path: Path, other: Path, luck: random.Random) -> None:
    file = luck.choice(sorted(path.iterdir()))
    os.truncate(file, luck.randrange(file.stat().st_size))


def extend(path: Path, other: Path, luck: random.Random) -> None:
    with luck.choice(sorted(path.iterdir())).open("ab") as file:
        file.write(luck.choice([b"\n", b" ", b"\0", luck.randbytes(7)]))


def zero(path: Path, other: Path, luck: random.Random) -> None:
    file = luck.choice(sorted(path.iterdir()))
    data = bytearray(file.read_bytes())
    start = luck.randrange(len(data))
    data[start : start + 4096] = bytes(len(data[start : start + 4096]))
    file.write_bytes(data)


def delete(path: Path, other: Path, luck: random.Random) -> None:
    luck.choice(sorted(path.iterdir())).unlink()


def swap(path: Path, other: Path, luck: random.Random) -> None:
    one, two = luck.sample(sorted(path.iterdir()), 2)
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b)
    two.write_bytes(a)


def stale(path: Path, other: Path, luck: random.Random) -> None:
    """One or two files of an earlier checkpoint, the manifest perhaps among them."""
    for file in luck.sample(sorted(other.iterdir()), luck.choice([1, 2])):
        shutil.copy(file, path / file.name)


def edit_state(path: Path, other: Path, luck: random.Random) -> None:
    state = json.loads((path / "state.json").read_text())
    state["step"] += luck.randrange(1, 9)
    (path / "state.json").write_text(json.dumps(state, separators=(",", ":")))


def edit_manifest(path: Path, other: Path, luck: random.Random) -> None:
    about = json.loads((path / "manifest.json").read_text())
    about[luck.choice(["step", "serial", "format"])] += luck.randrange(1, 9)
    (path / "manifest.json").write_text(json.dumps(about, sort_keys=True, indent=1))


def edit_and_match(path: Path, other: Path, luck: random.Random) -> None:
    """A changed file and a manifest that says so: only the name still tells."""
    file = path / luck.choice(["state.json", "tensors.safetensors"])
    data = bytearray(file.read_bytes())
    data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
    file.write_bytes(data)
    about = json.loads((path / "manifest.json").read_text())
    about["files"][file.name]["sha256"] = hashlib.sha256(data).hexdigest()
    (path / "manifest.json").write_text(json.dumps(about, sort_keys=True, indent=1))


def rename(path: Path, other: Path, luck: random.Random) -> None:
    serial, _, step, digest = path.name.split("-")
    names = [
        f"{int(serial) + 1:05d}-step-{step}-{digest}",
        f"{serial}-step-{int(step) + 1:08d}-{digest}",
        f"{serial}-step-{step}-{luck.randbytes(16).hex()}",
        other.name,
    ]
    path.rename(path.with_name(luck.choice(names)))


def add(path: Path, other: Path, luck: random.Random) -> None:
    (path / f"extra-{luck.randrange(9)}").write_bytes(luck.randbytes(luck.randrange(9)))


DAMAGES: list[Damage] = [flip, flip, truncate, extend, zero, delete, swap, stale]
DAMAGES += [edit_state, edit_manifest, edit_and_match, rename, add]


def damages(run: Path, folder: Path, count: int) -> dict[str, Any]:
    """Damaged copies of the newest checkpoint: how many there were, and which were accepted."""
    other, good = sorted(p for p in (run / "checkpoints").iterdir() if "-step-" in p.name)[-2:]
    content = bytes_of(good)
    tried: Counter[str] = Counter()
    accepted: list[str] = []
    unchanged = 0
    for case in range(10 * count):
        if sum(tried.values()) == count:
            break
        luck = random.Random(case)
        damage = DAMAGES[case % len(DAMAGES)]
        place = folder / "damaged"
        shutil.copytree(good, place / good.name)
        damage(place / good.name, other, luck)
        (path,) = place.iterdir()
        if (path.name, bytes_of(path)) == (good.name, content):
            unchanged += 1  # zeros onto zeros, say
        else:
            tried[damage.__name__] += 1
            try:
                checkpoints.load(path)
                accepted.append(f"{damage.__name__}, case {case}")
            except ChiaroError as error:
                if "\n" in str(error):
                    accepted.append(f"{damage.__name__}, case {case}: more than a sentence")
        shutil.rmtree(place)
    return {
        "damaged": sum(tried.values()),
        "accepted": accepted,
        "by_kind": dict(sorted(tried.items())),
        "left_as_it_was_and_drawn_again": unchanged,
    }


def bytes_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--damages", type=int, default=1000)
    call = parser.parse_args()
    torch.set_num_threads(1)
    # what every process would load, loaded once before they are forked
    importlib.import_module("torch._dynamo")
    open_training_data(read_settings("digits", SETTINGS))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chiaro-kill-") as name:
        folder = Path(name)
        result = {
            "kills": kills(folder, call.kills),
            "damages": damages(folder / "whole-1-0", folder, call.damages),
        }
    result["seconds"] = round(time.monotonic() - start)
    print(json.dumps(result, indent=2))
    whole = call.kills >= 50 and call.damages >= 1000
    if whole:
        print(save("kill", result, "python benchmarks/kill.py"))
    if result["kills"]["not_equal"] or result["damages"]["accepted"]:
        raise SystemExit("not all is well")


if __name__ == "__main__":
    main()
