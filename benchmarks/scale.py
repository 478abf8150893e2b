"""How opening, ordering, embedding and diagnosing grow with the data: rows, seconds, memory, slope.

    python benchmarks/scale.py                     10^5, 10^6 and 10^7 rows, all synthetic
    python benchmarks/scale.py --task open_folder  some of the tasks, beside saved results
    python benchmarks/scale.py --rows 100000       some sizes, not saved

Every row is a fresh process. Seconds are of the work alone, without imports; memory is what the
process held at most beyond what it held before the work (`ru_maxrss`; pages of mapped files that
were touched count). The slope is that of a line through log seconds (log memory) over log rows:
1 is proportional, 0 does not grow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from environment import HERE, save

SIZES = (100_000, 1_000_000, 10_000_000)
D = 16
"""Dimensions of the synthetic samples and embeddings."""


# ---- what is timed: each makes its input first, and returns the work ----


def open_folder(n: int, place: Path) -> Any:
    """A folder of n images whose index is in the cache."""
    from chiaroscuro.data import index, read_folder
    from chiaroscuro.data.places import cache_folder

    root = place / "photos"
    root.mkdir()
    names, ends = packed_names(n, "class/{:09d}.jpg")
    arrays = {"names": names, "name_ends": ends, "labels": np.zeros(n, np.int64)}
    notes = {"class_names": ["class"], "skipped": []}
    stamps = [[str(root), os.stat(root).st_mtime_ns]]
    keep(
        index,
        cache_folder("index"),
        ["folder", str(root), 64, "none", False],
        arrays,
        notes,
        stamps,
    )
    return lambda: read_folder(root, size=64, check="none")


def open_tar(n: int, place: Path) -> Any:
    """Archives of n samples whose index is in the cache, and a batch of 256 of them, decoded."""
    from chiaroscuro.data import Dataset, index, order_of, read_tar, shards, write_tars
    from chiaroscuro.data.places import cache_folder

    images = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), np.uint8)
    (path,) = write_tars(Dataset({"images": images}), place / "tars")
    small = read_tar(path)
    members = small.columns["images"].encodings  # type: ignore[attr-defined]
    names, ends = packed_names(n, "{:09d}")
    which = np.arange(n) % 8
    arrays = {
        "shard": np.zeros(n, np.int32),
        "start": members.start[which],
        "length": members.length[which],
        "keys": names,
        "key_ends": ends,
        "labels": np.zeros(n, np.int64),
    }
    notes = {"skipped": [], "class_names": [], "without_text": n, "first_without_text": ""}
    parts = [shard.stamp() for shard in shards.shards(path)]
    key = ["tar", [part[0] for part in parts], None, "none"]
    keep(index, cache_folder("index"), key, arrays, notes, parts)

    def work() -> None:
        data = read_tar(path, check="none")
        data[order_of(data, 256).indices(3, 7)]

    return work


def order(n: int, place: Path) -> Any:
    """A hundred batches of 256 in the order of an epoch."""
    from chiaroscuro.data import Order

    made = Order(n, 256)
    return lambda: [made.indices(5, batch) for batch in range(100)]


def fingerprint(n: int, place: Path) -> Any:
    """The digest by which a resumed run knows its data: all ids and labels."""
    from chiaroscuro.data import Dataset
    from chiaroscuro.data.index import RowsOnDisk
    from chiaroscuro.data.text import Strings
    from chiaroscuro.engine.fingerprint import fingerprint

    names, ends = packed_names(n, "class/{:09d}.jpg")
    np.save(place / "names.npy", names)
    np.save(place / "ends.npy", ends)
    ids = Strings(*(RowsOnDisk(place / f"{name}.npy") for name in ("names", "ends")))
    x = np.broadcast_to(np.zeros((1, 2), np.float32), (n, 2))
    data = Dataset({"x": x, "ids": ids})
    return lambda: fingerprint(data)


def embed(n: int, place: Path) -> Any:
    """Embeddings of n rows in shards of 65,536, by an MLP of 16 to 16."""
    import chiaroscuro as cs

    run = trained(place)
    x = samples(n, place)
    return lambda: cs.engine.embed_shards(run, x, place / "shards")


def diagnose(n: int, place: Path) -> Any:
    """A diagnosis of n embeddings in a file, of which 50,000 rows are drawn."""
    import chiaroscuro as cs

    path = samples(n, place)
    return lambda: cs.diagnose(path)


TASKS = (open_folder, open_tar, order, fingerprint, embed, diagnose)


# ---- synthetic input ----


def packed_names(n: int, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """n names of one length as a block of bytes, and where each ends."""
    before, _, after = pattern.partition("{:09d}")
    digits = np.arange(n)[:, None] // 10 ** np.arange(8, -1, -1) % 10 + ord("0")
    block = np.empty((n, len(pattern) - 6 + 9), np.uint8)
    block[:, : len(before)] = np.frombuffer(before.encode(), np.uint8)
    block[:, len(before) : len(before) + 9] = digits
    block[:, len(before) + 9 :] = np.frombuffer(after.encode(), np.uint8)
    return block.reshape(-1), np.arange(1, n + 1) * block.shape[1]


def keep(index: Any, folder: Path, key: list, arrays: dict, notes: dict, stamps: list) -> None:
    """Put an index into the cache as opening would."""
    import hashlib

    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    index._save(folder / name, index.Index(arrays, notes, stamps))


def samples(n: int, place: Path) -> Path:
    """n rows of Gaussian numbers in a file, written some at a time."""
    path = place / "x.npy"
    made = np.lib.format.open_memmap(path, "w+", np.float32, (n, D))
    rng = np.random.default_rng(0)
    for start in range(0, n, 1 << 18):
        stop = min(n, start + (1 << 18))
        made[start:stop] = rng.normal(size=(stop - start, D))
    made.flush()
    return path


def trained(place: Path) -> Any:
    """A run on a few rows of such numbers."""
    import chiaroscuro as cs

    np.save(place / "few.npy", np.random.default_rng(1).normal(size=(512, D)).astype(np.float32))
    sets = [
        *("epochs=1", "batch=256", "views.first=Jitter(noise=0.1)", "schedule.warmup=0"),
        *(f"network.encoder=MLP(d_in={D}, d={D}, depth=2, width=32)", "optimiser.name=sgd"),
        *("network.projector=Projector(d=8)", f"data.source={place / 'few.npy'}"),
    ]
    return cs.train(cs.engine.read_settings("simclr", sets), place / "run")


# ---- measuring ----


def alone(task: str, n: int) -> None:
    """One row, in this process; its input is made in another, so that it leaves no trace here."""
    place = Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        work = {one.__name__: one for one in TASKS}[task](n, place)
        reset_peak()
        before, began = peak(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": round(seconds, 4), "megabytes": round(peak() - before, 1)}))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def reset_peak() -> None:
    """Let the peak begin at what is held now (Linux)."""
    import gc

    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """The most memory held since the peak was reset, in megabytes."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def slope(rows: list[dict[str, Any]], key: str) -> float | None:
    """Of a line through log values over log rows; None for a single size."""
    if len(rows) < 2:
        return None
    values = [math.log10(max(row[key], 1e-3)) for row in rows]
    return round(float(np.polyfit([math.log10(row["rows"]) for row in rows], values, 1)[0]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--task", nargs="+", default=[task.__name__ for task in TASKS])
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    call = parser.parse_args()
    if call.alone:
        alone(call.task[0], call.rows[0])
        return
    result = []
    for task in call.task:
        rows = []
        for n in call.rows:
            with tempfile.TemporaryDirectory() as cache:
                done = subprocess.run(
                    [sys.executable, __file__, "--alone", "--task", task, "--rows", str(n)],
                    env={**os.environ, "XDG_CACHE_HOME": cache, "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
            rows.append({"rows": n, **json.loads(done.stdout.splitlines()[-1])})
            last = rows[-1]
            print(f"{task:<12} {n:>11,} {last['seconds']:>9.3f} s {last['megabytes']:>8.1f} MB")
        made = {"task": task, "sizes": rows}
        made |= {f"slope_{key}": slope(rows, key) for key in ("seconds", "megabytes")}
        print(
            f"{task:<12} slope: seconds {made['slope_seconds']}, memory {made['slope_megabytes']}"
        )
        result.append(made)
    if tuple(call.rows) == SIZES:  # tasks that were not run keep what is there
        path = HERE / "results" / "scale.json"
        there = json.loads(path.read_text())["result"] if path.is_file() else []
        by_name = {one["task"]: one for one in (*there, *result)}
        kept = [by_name[task.__name__] for task in TASKS if task.__name__ in by_name]
        print(save("scale", kept, "python benchmarks/scale.py"))


if __name__ == "__main__":
    main()
