"""Stop training at 200 moments, resume it, and compare every byte; then damage 1000 checkpoints.

    python benchmarks/kill.py [--kills 200] [--keep FOLDER]

A small residual network learns wandering digits with AdamW and an average of its weights, and saves
every second step; batches are prepared in the process or by 2 workers, on 1 rank or on 2. At a time
drawn at random, or while the temporary folder of a checkpoint is on the disk, it is stopped:

    kill        SIGKILL to one rank or to all
    terminate   SIGTERM to one rank or to all: it has to save and to end by itself
    interrupt   Ctrl-C, the same
    power cut   SIGKILL, and then the disk as it would be found: a file has the contents of its last
                fsync, a folder the names of its own. Half of them lose all that was not synced; in
                the others each file and each folder keeps the new state, the old one, or a part

In every third case a second training is started in the same folder meanwhile: it has to be refused
with a sentence, and must not disturb the first. Resumed, with the other number of workers, training
has to end with the arrays of the run that nobody disturbed (weights, average, moments, random
state) and with its history, record by record; and to go on from the last checkpoint whose saving
had returned, or a later one. With `--keep` what was found is kept in a folder, and a benchmark that
is stopped goes on from there; several at once take other cases by `--first`, and their
`cases.jsonl` are joined.

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
import stat
import sys
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

    def __init__(
        self, out: Path, workers: int, ranks: int, disk: Path | None = None, restart: bool = False
    ):
        self.out, self.restart = out, restart
        self.log = out.parent / f"{out.name}.log"
        self.saved = out.parent / f"{out.name}.saved"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.alive = {rank: self._fork(rank, workers, ranks, port, disk) for rank in range(ranks)}
        self.status: dict[int, int] = {}

    def _fork(self, rank: int, workers: int, ranks: int, port: int, disk: Path | None) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
            with self.log.open("a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            os.environ |= {"WORLD_SIZE": str(ranks), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            remember_saves(self.saved)
            if disk is not None:
                Disk(disk).watch()
            settings = read_settings("digits", [*SETTINGS, f"data.workers={workers}"])
            train(settings, self.out, resume=True, restart=self.restart, progress=sys.stderr)
            status = 0
        except SystemExit as error:
            status = int(error.code or 0)
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        except ChiaroError as error:
            print(f"error: {error}", file=sys.stderr)
        finally:
            sys.stderr.flush()
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

    def send(self, number: int, ranks: list[int], patience: float = 10) -> bool:
        """Send a signal to these ranks; the others have time to notice. Whether it hit a live one.

        Ranks that have not ended after so many seconds are killed.
        """
        hit = self.running()
        for rank in ranks:
            if rank in self.alive:
                os.kill(self.alive[rank], number)
        self.wait(patience)
        for pid in self.alive.values():
            os.kill(pid, signal.SIGKILL)
        self.wait(10)
        return hit and any(code in (-number, 128 + number) for code in self.status.values())

    def wait(self, seconds: float = SECONDS) -> bool:
        """Whether all ranks end well in this time."""
        end = time.monotonic() + seconds
        while self.alive and time.monotonic() < end:
            self.running()
            time.sleep(0.005)
        return not self.alive and not any(self.status.values())


def remember_saves(path: Path) -> None:
    """Write the step of each checkpoint to a file, once `checkpoints.save` has returned."""
    inner = checkpoints.save

    def save(folder: Any, step: int, *rest: Any, **options: Any) -> Path:
        made = inner(folder, step, *rest, **options)
        with path.open("ab", buffering=0) as file:
            file.write(f"{step}\n".encode())
        return made

    checkpoints.save = save


# ---- the disk after a power cut ----


class Disk:
    """What of a folder has reached the disk for certain: what was there at the last fsync of each.

    Args:
        shadow: a folder in which it is kept; not a part of what is watched.
    """

    def __init__(self, shadow: Path):
        self.shadow = shadow
        self.open: list[int] = []

    def watch(self) -> None:
        """Keep, from now on, the state of every file and folder that this process syncs."""
        self.shadow.mkdir(parents=True, exist_ok=True)
        inner = os.fsync

        def fsync(handle: Any) -> None:
            inner(handle)
            number = handle if isinstance(handle, int) else handle.fileno()
            self.open.append(os.dup(number))  # so that nothing else is given its number
            found = os.fstat(number)
            path = f"/proc/self/fd/{number}"
            if stat.S_ISDIR(found.st_mode):
                names = {e.name: [e.inode(), e.is_dir()] for e in os.scandir(path)}
                state = json.dumps(names).encode()
            else:
                state = Path(path).read_bytes()
            half = self.shadow / f"{found.st_ino}.half"
            half.write_bytes(state)
            half.rename(self.shadow / f"{found.st_ino}")

        os.fsync = fsync

    def restore(self, folder: Path, luck: random.Random, mixed: bool) -> None:
        """Make a folder what would be found of it after a power cut.

        Args:
            folder: whose own name and contents depend on what was synced; the one above is safe.
            luck: that decides.
            mixed: whether some of what was not synced is there all the same.
        """
        above = self.shadow / str(folder.parent.stat().st_ino)
        known = above.exists() and folder.name in json.loads(above.read_bytes())
        there = folder.is_dir() and (known or (mixed and luck.random() < 0.5))
        made = folder.with_name(f"{folder.name}.after")
        if there:
            self._folder(folder, folder.stat().st_ino, made, luck, mixed)
        shutil.rmtree(folder, ignore_errors=True)
        if there:
            made.rename(folder)

    def _folder(
        self, now: Path | None, number: int, to: Path, luck: random.Random, mixed: bool
    ) -> None:
        to.mkdir()
        present = {}
        if now is not None:
            present = {e.name: [e.inode(), e.is_dir()] for e in os.scandir(now)}
        kept = self.shadow / str(number)
        synced = json.loads(kept.read_bytes()) if kept.exists() else {}
        names = present if mixed and luck.random() < 0.5 else synced
        where = self._places(now)
        for name, (inode, is_folder) in names.items():
            if is_folder:
                self._folder(where.get(inode), inode, to / name, luck, mixed)
            else:
                (to / name).write_bytes(self._file(where.get(inode), inode, luck, mixed))

    def _places(self, now: Path | None) -> dict[int, Path]:
        """Where the entries of a folder are now, by number, whatever they are called."""
        return {} if now is None else {e.inode(): Path(e.path) for e in os.scandir(now)}

    def _file(self, now: Path | None, number: int, luck: random.Random, mixed: bool) -> bytes:
        kept = self.shadow / str(number)
        synced = kept.read_bytes() if kept.exists() else b""
        if not mixed or now is None or luck.random() < 0.4:
            return synced
        present = now.read_bytes()
        safe = len(synced) if present.startswith(synced) else 0
        return present if luck.random() < 0.5 else present[: luck.randrange(safe, len(present) + 1)]


# ---- the moments ----


def in_a_save(training: Training, luck: random.Random, duration: float) -> bool:
    """Wait until the temporary folder of a checkpoint is there, of a random one."""
    folder, wanted = training.out / "checkpoints", luck.randrange(1, 12)
    seen: set[str] = set()
    while training.running():
        names = os.listdir(folder) if folder.is_dir() else []
        seen |= {name for name in names if name.startswith(".saving-")}
        if len(seen) >= wanted:
            return True
        time.sleep(0.0005)
    return False


def at_any_time(training: Training, luck: random.Random, duration: float) -> bool:
    """Wait for a random part of the time that a training takes."""
    end = time.monotonic() + luck.uniform(0, duration)
    while training.running() and time.monotonic() < end:
        time.sleep(0.001)
    return training.running()


MOMENTS = {"at any time": at_any_time, "in a save": in_a_save}
STOPS = ("kill", "terminate", "interrupt", "power cut")
SIGNALS = {"terminate": signal.SIGTERM, "interrupt": signal.SIGINT}


def stopped(folder: Path, case: int, durations: dict[str, float]) -> dict[str, Any] | None:
    """Stop one training; what was found, without what came of it; None if it had ended before."""
    luck = random.Random(case)
    stop = STOPS[case % 4]
    ranks, workers = (1, 2)[case // 4 % 2], (0, 2)[case // 8 % 2]
    moment = luck.choice(list(MOMENTS)) if stop in ("kill", "power cut") else "at any time"
    mixed = luck.random() < 0.5
    second = case % 3 == 0
    out, disk = folder / f"case-{case}", folder / f"case-{case}.disk"
    training = Training(out, workers, ranks, disk if stop == "power cut" else None)
    said: list[str] = []
    if second:
        said = a_second(training, workers)
    came = MOMENTS[moment](training, luck, durations[f"{ranks} {workers}"])
    all_ranks = list(range(ranks))
    hit_ranks = luck.choice([all_ranks, *([rank] for rank in all_ranks)])
    number = SIGNALS.get(stop, signal.SIGKILL)
    hit = training.send(number, hit_ranks, 60 if stop in SIGNALS else 10) and came
    if not hit:
        return None
    steps = training.saved.read_text().split() if training.saved.exists() else []
    problems = [] if second is bool(said) or not said else said
    if second and said != ["refused"] and said != ["first"]:
        problems = said or ["the second training was not refused"]
    if stop in SIGNALS:
        problems += not_graceful(training, number)
    if stop == "power cut":
        Disk(disk).restore(out, luck, mixed)
    return {
        "case": case,
        "stop": stop + (", mixed" if mixed else ", all lost") * (stop == "power cut"),
        "moment": moment,
        "ranks": ranks,
        "workers": workers,
        "two_writers": second,
        "last_saved": int(steps[-1]) if steps else 0,
        "different": problems,
    }


def a_second(training: Training, workers: int) -> list[str]:
    """Start another training in the folder of one that has begun; what came of it.

    It is refused, or it is first where the other has not begun to write: then that is refused.
    """
    lock = training.out / "writer.lock"
    while training.running() and not (lock.exists() and lock.stat().st_size):
        time.sleep(0.002)
    if not training.running():
        return ["first"]
    other = Training(training.out, workers, 1)
    other.log = training.log
    other.wait(60)
    for pid in other.alive.values():
        os.kill(pid, signal.SIGKILL)
        other.wait(10)
        return ["the second training was not refused in 60 s"]
    text = training.log.read_text()
    if "Another process (pid " in text and "Traceback" not in text:
        return ["refused"]
    return ["first"] if not training.running() else ["the second training ended otherwise"]


def not_graceful(training: Training, number: int) -> list[str]:
    """What is wrong with a training that was asked to end: no save, no sentence, a traceback."""
    text = training.log.read_text()
    problems = ["a traceback"] if "Traceback" in text else []
    if 128 + number in training.status.values() and "stopped after step " in text:
        step = int(text.split("stopped after step ")[-1].split()[0])
        steps = training.saved.read_text().split() if training.saved.exists() else []
        if not steps or int(steps[-1]) != step:
            problems.append(f"it stopped after step {step} and saved {steps[-1:]}")
    if -signal.SIGKILL in training.status.values():
        problems.append("it did not end in 60 s")
    return problems


def kills(folder: Path, count: int, first: int = 0) -> dict[str, Any]:
    """Every case stopped once, resumed, and compared with the run that was left alone."""
    durations = undisturbed(folder)
    wholes = {ranks: final(folder / f"whole-{ranks}-0") for ranks in (1, 2)}
    histories = {ranks: history(folder / f"whole-{ranks}-0") for ranks in (1, 2)}
    notes = folder / "cases.jsonl"
    lines = notes.read_text().splitlines() if notes.exists() else []
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    missed = sum(one["missed"] for one in found[-1:])
    start = found[-1]["case"] + 1 if found else first
    for case in range(start, start + 10 * count):
        if len(found) >= count:
            break
        for left in folder.glob(f"case-{case}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        one = stopped(folder, case, durations)
        if one is None:
            missed += 1  # it had ended, or the save had
            continue
        out, ranks = folder / f"case-{case}", one["ranks"]
        left_at = checkpoints.latest_good(out / "checkpoints").checkpoint
        one["resumed_from"] = None if left_at is None else left_at.step
        if (one["resumed_from"] or 0) < one["last_saved"]:
            one["different"].append(f"a saved checkpoint, step {one['last_saved']}, is lost")
        # stopped before its first checkpoint: to begin again has to be asked for
        again = left_at is None and one["last_saved"] == 0
        resumed = Training(out, 2 - one["workers"], ranks, restart=again).wait()
        one["different"] += different(wholes[ranks], final(out)) if resumed else ["it did not end"]
        if resumed and history(out) != histories[ranks]:
            one["different"].append("history")
        one["missed"] = missed
        found.append(one)
        with notes.open("a") as file:
            file.write(json.dumps(one) + "\n")
        print(f"{len(found)} of {count}: {one}", flush=True)
        if not one["different"]:
            for left in folder.glob(f"case-{case}*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    kinds = Counter(f"{f['stop']}, {f['moment']}" for f in found)
    places = Counter(f"{f['ranks']} rank(s), {f['workers']} workers" for f in found)
    return {
        "stopped": len(found),
        "bitwise_equal": sum(not f["different"] for f in found),
        "by_kind": dict(sorted(kinds.items())),
        "by_place": dict(sorted(places.items())),
        "with_a_second_writer": sum(f["two_writers"] for f in found),
        "resumed_from_step": sorted(f["resumed_from"] or 0 for f in found),
        "not_equal": [f for f in found if f["different"]],
        "came_too_late_and_drawn_again": missed,
        "arrays_compared": {r: len(whole.arrays) for r, whole in wholes.items()},
        "steps": wholes[1].step,
    }


def undisturbed(folder: Path) -> dict[str, float]:
    """Train with 1 and 2 ranks, 0 and 2 workers; the seconds of each. They have to end alike."""
    kept = folder / "durations.json"
    if kept.exists():
        return json.loads(kept.read_text())
    durations = {}
    for ranks in (1, 2):
        for workers in (0, 2):
            out, start = folder / f"whole-{ranks}-{workers}", time.monotonic()
            shutil.rmtree(out, ignore_errors=True)
            if not Training(out, workers, ranks).wait():
                raise SystemExit(f"the undisturbed run failed; see {out}.log")
            durations[f"{ranks} {workers}"] = time.monotonic() - start
            if different(final(folder / f"whole-{ranks}-0"), final(out)):
                raise SystemExit(
                    f"{workers} workers gave other weights than none, on {ranks} ranks"
                )
    kept.write_text(json.dumps(durations))
    return durations


def history(out: Path) -> list[tuple[Any, ...]]:
    """The records of a run without what depends on the clock."""
    names = ("step", "loss", "lr", "epoch", "mean_loss")
    return [tuple(one.get(name) for name in names) for one in Run.open(out).history().records]


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
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="a folder; a stopped benchmark goes on from it")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    call = parser.parse_args()
    torch.set_num_threads(1)
    # what every process would load, loaded once before they are forked
    importlib.import_module("torch._dynamo")
    open_training_data(read_settings("digits", SETTINGS))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chiaro-kill-") as name:
        folder = call.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        result: dict[str, Any] = {
            "kills": kills(folder, call.kills, call.first),
            "damages": damages(folder / "whole-1-0", Path(name), call.damages),
        }
    result["seconds"] = round(time.monotonic() - start)
    print(json.dumps(result, indent=2))
    whole = call.kills >= 200 and call.damages >= 1000
    if whole:
        print(save("kill", result, "python benchmarks/kill.py"))
    if result["kills"]["not_equal"] or result["damages"]["accepted"]:
        raise SystemExit("not all is well")


if __name__ == "__main__":
    main()
