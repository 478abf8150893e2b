"""The exact neural kernel: seconds against `torch.func`, and the memory of a large one.

    python benchmarks/neural_kernel.py

The multilayer perceptron has two hidden layers of 256, n = 256 inputs of dimension 32 and d = 2
outputs. Beside ours: `jacrev` of the whole batch's outputs by the parameters, and `vmap(jacrev)`
sample by sample, each followed by the product J J^T. All in float32, on one thread and interleaved,
best of several; values are compared first, in float64 too.

The convolutional net has about 70,000 parameters, n = 1024 pictures of 32 x 32 and d = 16 outputs:
K alone has 16,384 x 16,384 numbers, 1.07 GB. Its time, and by how much memory grows in a fresh
process; entries of K are compared with gradients taken one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from chiaroscuro import dynamics
from environment import interleave, peak_growth, save

FASTER, CLOSE, MEMORY = 50, 1e-6, 8 * 10**9
"""Times `jacrev`, largest relative difference, bytes."""


def perceptron() -> nn.Module:
    """Context 75,000 parameters, d = 2."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2)
    )


def convolutional() -> nn.Module:
    """Context 70,000 parameters, d = 16."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16),
    )  # fmt: skip


def gram(jacobians: dict[str, Tensor], n: int) -> Tensor:
    """(n, n, d, d) of gradients (n, d, *shape) by parameter."""
    J = torch.cat([j.flatten(2) for j in jacobians.values()], dim=2)
    return (J.flatten(0, 1) @ J.flatten(0, 1).T).view(n, -1, n, J.shape[1]).permute(0, 2, 1, 3)


def contestants(module: nn.Module, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Ways to the same K."""
    weights = {name: p.detach() for name, p in module.named_parameters()}
    n = len(x)
    batch = lambda w: functional_call(module, w, (x,))
    one = lambda w, row: functional_call(module, w, (row[None],))[0]

    return {
        "ours": lambda: dynamics.neural_kernel(module, x),
        "jacrev": lambda: gram(jacrev(batch)(weights), n),
        "vmap(jacrev)": lambda: gram(vmap(jacrev(one), in_dims=(None, 0))(weights, x), n),
    }


def differences(module: nn.Module, x: Tensor) -> dict[str, float]:
    """Largest difference of the others from `jacrev`, relative to the largest entry."""
    found = {name: make() for name, make in contestants(module, x).items()}
    truth = found.pop("jacrev")
    return {name: float((K - truth).abs().max() / truth.abs().max()) for name, K in found.items()}


def places(n: int) -> list[tuple[int, int, int, int]]:
    """Twenty entries (i, j, k, l) of the large kernel."""
    generator = torch.Generator().manual_seed(1)
    return [
        (*torch.randint(n, (2,), generator=generator).tolist(),
         *torch.randint(16, (2,), generator=generator).tolist())
        for _ in range(20)
    ]  # fmt: skip


def large(n: int, threads: int, notes: str) -> Callable[[], Tensor]:
    """The large kernel, ready to be weighed; it notes its seconds and some of its entries."""
    torch.set_num_threads(threads)
    module = convolutional()
    dynamics.neural_kernel(module, torch.randn(2, 3, 32, 32))  # what a first call loads
    x = pictures(n)

    def run() -> Tensor:
        start, worked = time.perf_counter(), time.process_time()
        K = dynamics.neural_kernel(module, x)
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
        entries = [float(K[at]) for at in places(n)]
        Path(notes).write_text(json.dumps({"seconds": seconds, "cpu": worked, "entries": entries}))
        return K

    return run


def pictures(n: int) -> Tensor:
    """n pictures of noise."""
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def largest_error(entries: list[float], n: int) -> float:
    """Of entries K_ij^kl, from gradients taken one by one in float64, by Cauchy and Schwarz."""
    module, x = convolutional().double(), pictures(n).double()
    weights = list(module.parameters())
    worst = 0.0
    for entry, (i, j, k, l) in zip(entries, places(n), strict=True):
        a, b = (
            torch.cat([g.flatten() for g in torch.autograd.grad(z, weights)])
            for z in (module(x[i : i + 1])[0, k], module(x[j : j + 1])[0, l])
        )
        worst = max(worst, abs(entry - float(a @ b)) / float(a.norm() * b.norm()))
    return worst


def main() -> None:
    """Compare, time, weigh, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--n", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2, help="of the large kernel")
    parser.add_argument("--no-save", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(256, 32)
    single = differences(perceptron(), x)
    double = differences(perceptron().double(), x.double())
    seconds = interleave(contestants(perceptron(), x), arguments.repeats)
    times = {name: value / seconds["ours"] for name, value in seconds.items()}
    for name, value in seconds.items():
        print(f"{name:20}{1000 * value:10.2f} ms{times[name]:9.1f} x")
    print(f"largest difference {single['ours']:.2g} in float32, {double['ours']:.2g} in float64")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "notes.json"
        growth = peak_growth(large, arguments.n, arguments.threads, str(file))
        notes = json.loads(file.read_text())
    spent, worst = notes["seconds"], largest_error(notes["entries"], arguments.n)
    count = sum(p.numel() for p in convolutional().parameters())
    print(f"convolutional, n = {arguments.n}: {growth / 1e9:.2f} GB, {spent:.0f} s, {worst:.2g}")
    if arguments.no_save:
        return
    content = {
        "load": os.getloadavg()[0],
        "repeats": arguments.repeats,
        "perceptron": {
            "parameters": sum(p.numel() for p in perceptron().parameters()),
            "seconds": seconds,
            "times_ours": times,
            "largest_difference_float32": single,
            "largest_difference_float64": double,
            "target": {"times_jacrev": FASTER, "difference": CLOSE},
            "reached": times["jacrev"] >= FASTER and double["ours"] <= CLOSE,
        },
        "convolutional": {
            "parameters": count,
            "n": arguments.n,
            "d": 16,
            "bytes_of_kernel": (arguments.n * 16) ** 2 * 4,
            "peak_growth_bytes": growth,
            "seconds": spent,
            "seconds_of_cpu": notes["cpu"],
            "threads": arguments.threads,
            "largest_error_of_entries": worst,
            "target_bytes": MEMORY,
            "reached": growth <= MEMORY,
        },
    }
    print(save("neural_kernel", content, "python benchmarks/neural_kernel.py").name)


if __name__ == "__main__":
    main()
