"""What every benchmark shares: where it ran, how it times, how it weighs, and how it is saved."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
PEERS = (
    "albumentations",
    "kornia",
    "lightly",
    "open_clip_torch",
    "pytorch-metric-learning",
    "torchvision",
)


def environment() -> dict[str, Any]:
    """The machine, the versions, the threads and the commit a number belongs to.

    `dirty` is true if anything but the saved results differs from the commit; both are None where
    there is no commit. `peers` holds the version of each peer that is installed.
    """
    return {
        "commit": _git("rev-parse", "--verify", "HEAD"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "dirty": _dirty(),
        "peers": {name: found for name in PEERS if (found := _version(name))},
        "platform": platform.platform(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def save(name: str, result: Any, command: str) -> Path:
    """Write `results/<name>.json`: the result, the command that made it, and the environment.

    NaN and infinity are refused, for they are not JSON.
    """
    content = {"command": command, "environment": environment(), "result": result}
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def interleave(
    functions: Mapping[str, Callable[[], Any]], repeats: int, calls: int = 1
) -> dict[str, float]:
    """Best seconds of each function over `repeats` rounds, every round running all of them.

    Interleaving lets a slow spell of the machine fall on all alike, and the best of several leaves
    it out. Each round starts one function later than the last, so that none always follows the
    same neighbour's caches; one call of each beforehand is not counted. Of a short function several
    `calls` are timed together.
    """
    names = list(functions)
    for name in names:
        functions[name]()
    best = dict.fromkeys(names, float("inf"))
    for round_ in range(repeats):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            start = time.perf_counter()
            for _ in range(calls):
                functions[name]()
            best[name] = min(best[name], (time.perf_counter() - start) / calls)
    return best


def peak_growth(setup: Callable[..., Callable[[], Any]], *arguments: Any) -> int:
    """Bytes by which peak resident memory grows while `setup(*arguments)()` runs.

    A fresh process calls `setup(*arguments)`, which prepares the inputs and returns the function to
    weigh; only what that function adds is counted, its result included. Because the process is
    fresh, `setup` must be importable (defined at the top of a file) and the calling script guarded
    by `if __name__ == "__main__"`. What a first call loads lazily counts too: let `setup` make a
    small call beforehand to leave it out. Linux only. A process killed for want of memory raises
    BrokenProcessPool here.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(_growth, torch.get_num_threads(), setup, arguments).result()


def _growth(threads: int, setup: Callable[..., Callable[[], Any]], arguments: tuple) -> int:
    torch.set_num_threads(threads)
    function = setup(*arguments)
    # Memory that the set-up freed but the allocator kept would be reused unseen: give it back.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # 5 sets the peak (VmHWM) back to the present resident size: see proc_pid_clear_refs(5).
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmHWM")
    result = function()
    growth = _status("VmHWM") - before
    del result
    return growth


def _status(field: str) -> int:
    """One size from /proc/self/status, in bytes."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)[1])


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(*words: str) -> str | None:
    """What git answers, or None where there is no git, no repository or no commit."""
    try:
        done = subprocess.run(("git", *words), cwd=HERE, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _dirty() -> bool | None:
    if _git("rev-parse", "--verify", "HEAD") is None:
        return None
    return bool(_git("status", "--porcelain", "--", ":/", ":(top,exclude)benchmarks/results"))
