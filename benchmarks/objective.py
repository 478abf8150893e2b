"""What a contrastive step costs, forward and backward, beside its bound and its peers.

The bound is the arithmetic nobody can avoid, on preallocated memory: two products of the full
matrix of similarities, (2n, 2n, d), and one exponential of it; for other kernels also the roots
and further exponentials that they have. All candidates of one size run interleaved in one process.

    python benchmarks/objective.py                     the whole table, about ten minutes
    python benchmarks/objective.py --quick             without the largest batches, not saved
    python benchmarks/objective.py --only 256          one column of times again, more patiently
    python benchmarks/objective.py --against OLD/src   only the ratios to an older source, added to
                                                       the saved table
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import torch

import chiaroscuro as cs
import peers
from environment import HERE, interleave, peak_growth, save

D = 128
KERNELS: dict[str, Callable[[], cs.Kernel]] = {
    "cosine": lambda: cs.Cosine(tau=0.5),
    "cosine, tau 0.01": lambda: cs.Cosine(tau=0.01),
    "gaussian per dimension": lambda: cs.Gaussian(tau=[0.5] * 64 + [0.7] * 64),
    "laplace": lambda: cs.Laplace(tau=0.5),
    "sum": lambda: cs.Sum(cs.Gaussian(tau=0.5), cs.Laplace(tau=0.5)),
    "cauchy": lambda: cs.Cauchy(tau=1.0),
    "student t": lambda: cs.StudentT(nu=2.0, tau=1.0),
}
LATER = ("cauchy", "student t")
"""Kernels that the oldest source lacks; their bound is that of a Gaussian."""
PEERS = {
    "lightly": lambda z1, z2: peers.lightly_nt_xent(z1, z2, 0.5),
    "textbook": lambda z1, z2: peers.textbook_nt_xent(z1, z2, 0.5),
}


def bound(n: int, exponentials: int = 1, roots: int = 0) -> Callable[[], None]:
    """Two products of (2n, 2n, d), and the elementwise functions of 2n x 2n a kernel has."""
    a = torch.nn.functional.normalize(torch.randn(2 * n, D))
    matrix, out = torch.empty(2 * n, 2 * n), torch.empty(2 * n, D)

    def run() -> None:
        torch.mm(a, a.T, out=matrix)
        for _ in range(roots):
            matrix.abs_().sqrt_()
        for _ in range(exponentials):
            torch.exp(matrix, out=matrix)
            if exponentials > 1:
                matrix.clamp_(max=1.0)
        torch.mm(matrix, a, out=out)

    return run


def step(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], n: int) -> Callable[[], None]:
    """Forward and backward on a batch of unit rows whose pairs resemble each other."""
    torch.manual_seed(n)
    z1 = torch.nn.functional.normalize(torch.randn(n, D))
    z2 = torch.nn.functional.normalize(z1 + 0.05 * torch.randn(n, D))
    z1.requires_grad_()
    z2.requires_grad_()

    def run() -> None:
        loss(z1, z2).backward()
        z1.grad = z2.grad = None

    return run


def of_kernel(name: str, n: int) -> Callable[[], None]:
    """A step with one of our kernels, warmed up on a small batch (to be weighed in memory)."""
    loss = cs.InfoNCE(KERNELS[name]())
    step(loss, 8)()
    return step(loss, n)


def of_peer(name: str, n: int) -> Callable[[], None]:
    """A step of a peer, warmed up on a small batch."""
    step(PEERS[name], 8)()
    return step(PEERS[name], n)


def times(n: int, repeats: int, calls: int) -> dict[str, dict[str, float]]:
    """Seconds of everything at one size, and each as a multiple of its own bound."""
    bounds = {"cosine": (1, 0), "laplace": (1, 1), "sum": (2, 1)}
    functions = {f"bound {name}": bound(n, *counts) for name, counts in bounds.items()}
    functions |= {name: of_kernel(name, n) for name in KERNELS}
    functions |= {name: of_peer(name, n) for name in PEERS}
    seconds = interleave(functions, repeats, calls)
    own = {name: f"bound {name}" if name in bounds else "bound cosine" for name in functions}
    return {
        name: {"seconds": seconds[name], "bounds": seconds[name] / seconds[own[name]]}
        for name in (*KERNELS, *PEERS)
    } | {name: {"seconds": seconds[name]} for name in functions if name.startswith("bound")}


def show(n: int | str, table: dict[str, dict[str, float]]) -> None:
    """One column of the table."""
    print(f"\nn = {n} pairs, d = {D}, two threads")
    for name, row in table.items():
        multiple = f"{row['bounds']:6.2f} x its bound" if "bounds" in row else ""
        print(f"  {name:24s} {row['seconds'] * 1e3:10.3f} ms {multiple}")


def again(n: int) -> None:
    """Replace the times of one size in the saved result by the best of more rounds."""
    result = json.loads((HERE / "results" / "objective.json").read_text())["result"]
    result["times"][str(n)] = times(n, 60, 20 if n < 1000 else 1)
    show(n, result["times"][str(n)])
    print(save("objective", result, "python benchmarks/objective.py"))


class Source:
    """A process that times steps of one source when asked."""

    def __init__(self, path: str):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([path, str(HERE)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, name: str, n: int, calls: int) -> float:
        """Seconds of one step, the mean of so many calls."""
        self.process.stdin.write(json.dumps([name, n, calls]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def serve() -> None:
    """Time what standard input asks for, line by line."""
    steps: dict[tuple[str, int], Callable[[], None]] = {}
    for line in sys.stdin:
        name, n, calls = json.loads(line)
        if (name, n) not in steps:
            steps[name, n] = of_kernel(name, n)
            steps[name, n]()
        start = time.perf_counter()
        for _ in range(calls):
            steps[name, n]()
        print(json.dumps((time.perf_counter() - start) / calls), flush=True)


def against(older: str) -> dict:
    """Seconds of a step over those of an older source, alternating, best of several of each."""
    sources = {"now": Source(str(HERE.parent / "src")), "before": Source(older)}
    ratios: dict[str, dict[str, float]] = {}
    for n, repeats, calls in ((256, 60, 10), (1024, 30, 1), (4096, 6, 1)):
        ratios[str(n)] = {}
        for name in KERNELS:
            if name in LATER:
                continue
            best = dict.fromkeys(sources, float("inf"))
            for _ in range(repeats):
                for when, source in sources.items():
                    best[when] = min(best[when], source.seconds(name, n, calls))
            ratios[str(n)][name] = best["now"] / best["before"]
            print(f"n = {n}: {name:24s} {ratios[str(n)][name]:6.2f} of the older time")
    for source in sources.values():
        source.close()
    git = ["git", "-C", older, "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    return {"commit": commit, "ratios": ratios}


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="skip the largest, save nothing")
    parser.add_argument("--only", type=int, metavar="N", help="measure the times of one size again")
    parser.add_argument("--against", metavar="SRC", help="only the ratios to an older source")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    call = parser.parse_args()
    quick = call.quick
    torch.set_num_threads(2)
    if call.serve:
        serve()
        return
    if call.against:
        result = json.loads((HERE / "results" / "objective.json").read_text())["result"]
        result["against"] = against(call.against)
        print(save("objective", result, "python benchmarks/objective.py --against OLD/src"))
        return
    if call.only:
        again(call.only)
        return
    result: dict = {"d": D, "times": {}, "peak growth in MB": {}}
    for n, repeats, calls in ((256, 20, 20), (1024, 15, 2), (4096, 6, 1)):
        table = times(n, repeats, calls)
        result["times"][str(n)] = table
        show(n, table)
    ours = result["times"]["4096"]["cosine"]["seconds"]
    result["speed-up at 4096"] = {
        name: result["times"]["4096"][name]["seconds"] / ours for name in PEERS
    }
    print("\nfaster at 4096 than", result["speed-up at 4096"])
    sizes = (1024, 4096) if quick else (1024, 4096, 16384)
    for name, build in (*((k, of_kernel) for k in KERNELS), *((p, of_peer) for p in PEERS)):
        row = {}
        for n in sizes:
            if build is of_peer and n > 4096:
                continue  # two gigabytes and more for a matrix alone
            row[str(n)] = peak_growth(build, name, n) / 1e6
        result["peak growth in MB"][name] = row
        print(f"  {name:24s} peak growth {row} MB")
    if not quick:
        start = time.perf_counter()
        of_kernel("cosine", 65536)()
        result["seconds at 65536"] = time.perf_counter() - start
        print("n = 65536 pairs:", result["seconds at 65536"], "s")
        saved = HERE / "results" / "objective.json"
        if saved.is_file():
            before = json.loads(saved.read_text())["result"]
            result |= {key: before[key] for key in ("against",) if key in before}
        print(save("objective", result, "python benchmarks/objective.py"))


if __name__ == "__main__":
    main()
