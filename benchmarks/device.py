"""What a step asks of an accelerator: synchronisations, operations, bytes and collectives.

No accelerator is needed: on `meta` nothing is computed and every operation is counted, and to read
a number there is an error. An operation is what launches something; views are none. A row is a
function that returns its counts; add one to `ROWS` and it is in the table. Code from before the
losses could run without reading numbers is counted on the CPU, by its own tiles. Collectives are
those of a training on two ranks over gloo, beside what `DistributedDataParallel` sends: see
`collectives.py`.

    python benchmarks/device.py                    the table, saved beside the older counts
    python benchmarks/device.py --before OLD/src   also with an older source, side by side
    python benchmarks/device.py --growth           only how losses grow, beside saved results
    python benchmarks/device.py --count NAME ...   the counts of some rows, as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "accelerator"))

from counting import Counting  # noqa: E402

import chiaroscuro as cs  # noqa: E402
import collectives  # noqa: E402
from chiaroscuro.engine.optimisers import LARS  # noqa: E402
from chiaroscuro.models import ResNet, ViT  # noqa: E402
from chiaroscuro.models.momentum import Momentum  # noqa: E402

PAIRS, D = 4096, 128
Counts = dict[str, float | str]

LOSSES: dict[str, str] = {
    "InfoNCE, Cosine": "cs.InfoNCE(cs.Cosine(tau=0.5))",
    "InfoNCE, Cosine, learnt": "cs.InfoNCE(cs.Cosine(tau=cs.Learnable(0.07)), cs.OtherView())",
    "InfoNCE, Dot": "cs.InfoNCE(cs.Dot(tau=1.0))",
    "InfoNCE, Gaussian": "cs.InfoNCE(cs.Gaussian(tau=0.5))",
    "InfoNCE, Laplace": "cs.InfoNCE(cs.Laplace(tau=0.5))",
    "InfoNCE, Exponential": "cs.InfoNCE(cs.Exponential(gamma=1.5, tau=0.5))",
    "InfoNCE, Lp": "cs.InfoNCE(cs.Lp(p=3, tau=0.5))",
    "InfoNCE, Cauchy": "cs.InfoNCE(cs.Cauchy(tau=1.0))",
    "InfoNCE, StudentT": "cs.InfoNCE(cs.StudentT(nu=2.0, tau=1.0))",
    "InfoNCE, Sum of two": "cs.InfoNCE(cs.Sum(cs.Gaussian(tau=0.5), cs.Laplace(tau=0.5)))",
    "SupCon": "cs.SupCon()",
    "Generalised": "cs.Generalised()",
    "SigLIP": "cs.SigLIP()",
    "Debiased": "cs.Debiased()",
    "VICReg": "cs.VICReg()",
    "BarlowTwins": "cs.BarlowTwins()",
    "SpectralContrastive": "cs.SpectralContrastive()",
    "AlignUniform": "cs.AlignUniform()",
    "BYOL": "cs.BYOL()",
    "SimSiam": "cs.SimSiam()",
    "DINO": "cs.DINO()",
    "SwAV": "cs.SwAV()",
    "NNCLR": "cs.NNCLR()",
}


def counts(count: Counting, where: str) -> Counts:
    """The columns of a row."""
    return {
        "synchronisations": count.waits,
        "operations": count.operations,
        "bytes": count.bytes,
        "counted on": where,
    }


def of_loss(text: str, device: str = "meta", pairs: int = PAIRS) -> Counts:
    """A loss of 4096 pairs, forward and backward."""
    objective = eval(text, {"cs": cs}).to(device)  # noqa: S307 -- the table above
    make = torch.empty if device == "meta" else torch.randn
    z1, z2 = (make(pairs, D, device=device, requires_grad=True) for _ in range(2))
    more = {}
    if "labels" in objective.takes:
        more["labels"] = torch.arange(pairs).to(device) // 8
    if "queue" in getattr(objective, "needs", ()):
        more["queue"] = make(16384, D, device=device)
    with Counting() as count:
        objective(z1, z2, **more).backward()
    return counts(count, device)


def growth() -> dict[str, dict[int, Counts]]:
    """The counts of some losses by the number of pairs."""
    names = ("InfoNCE, Cosine", "InfoNCE, Gaussian", "InfoNCE, Sum of two")
    sizes = [PAIRS // 4, PAIRS // 2, PAIRS, 2 * PAIRS, 4 * PAIRS]
    return {name: {n: of_loss(LOSSES[name], pairs=n) for n in sizes} for name in names}


def of_step(encoder: Callable[[], nn.Module], size: int, batch: int = 64) -> Counts:
    """Two views through a network, NT-Xent, the gradients, LARS and a slow copy."""
    network = encoder().to("meta")
    matrices, others = ([p for p in network.parameters() if (p.ndim > 1) == m] for m in (1, 0))
    optimiser = LARS([{"params": matrices}, {"params": others, "exclude": True}], lr=0.1)
    slow, loss = Momentum(network), cs.InfoNCE()
    for counted in (False, True):  # the first step makes the optimiser's state
        x1, x2 = (torch.empty(batch, 3, size, size, device="meta") for _ in range(2))
        with Counting() as count:
            value = loss(network(x1), network(x2)) if counted else network(x1).square().sum()
            value.backward()
            optimiser.step()
            slow.update(network, 0.99)
    return counts(count, "meta")


ROWS: dict[str, Callable[[], Counts]] = {
    name: (lambda text=text: _somewhere(text)) for name, text in LOSSES.items()
}
ROWS["step, ResNet-50, 64 pairs of 224 px"] = lambda: of_step(lambda: ResNet(depth=50), 224)
ROWS["step, ViT, 64 pairs of 32 px"] = lambda: of_step(lambda: ViT(size=32), 32)


def _somewhere(text: str) -> Counts:
    """On `meta`, or, where the code reads numbers, on the CPU."""
    try:
        return of_loss(text)
    except (RuntimeError, NotImplementedError):
        return of_loss(text, "cpu")


def older(source: str, names: list[str]) -> dict[str, Counts]:
    """The counts of another source, in a process of its own; without the rows that it lacks."""
    found = {}
    for name in names:
        command = [sys.executable, __file__, "--count", name]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True
        )
        if done.returncode == 0:
            found |= json.loads(done.stdout.splitlines()[-1])
    return found


def add_messages(rows: dict[str, Counts], source: str) -> None:
    """Add the collectives per step that a source sends to each row; none where it lacks it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        collectives.write_data(folder)
        (folder / "losses.json").write_text(json.dumps(LOSSES))
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run(
            [sys.executable, *words, str(HERE / "collectives.py"), str(folder / "out.json")],
            env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=True,
        )
        found = json.loads((folder / "out.json").read_text())["per step"]
    sizes = {name.rpartition(", ")[0]: name for name in ROWS if name.startswith("step")}
    for name, count in found.items():
        rows.setdefault(sizes.get(name, name), {})["collectives"] = count


def show(result: dict[str, dict[str, Counts]]) -> None:
    """Print the table."""
    heads = ("waits", "operations", "MB written", "collectives")
    print(f"{'':36s}", *(f"{head:>18s}" for head in heads))
    for name, row in result["after"].items():
        old = result["before"].get(name, {})
        cells = []
        for key in ("synchronisations", "operations", "bytes", "collectives"):
            scale = 1e6 if key == "bytes" else 1
            each = [f"{float(c[key]) / scale:,.0f}" for c in (old, row) if key in c]
            cells.append(" -> ".join(each))
        print(f"{name:36s}", *(f"{cell:>18s}" for cell in cells))


def main() -> None:
    """Count, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", metavar="SRC", help="an older source to count beside this one")
    parser.add_argument("--count", nargs="+", metavar="NAME", help="print the counts of these rows")
    parser.add_argument("--growth", action="store_true", help="count only how losses grow")
    call = parser.parse_args()
    torch.manual_seed(0)
    if call.count:
        print(json.dumps({name: ROWS[name]() for name in call.count}))
        return
    from environment import save

    if call.growth:
        result = json.loads((HERE / "results" / "device.json").read_text())["result"]
    else:
        after = {name: row() for name, row in ROWS.items()}
        add_messages(after, str(HERE.parent / "src"))
        kept = json.loads((HERE / "results" / "device.json").read_text())["result"]
        before = {name: kept[name] for name in ("before", "commit before") if name in kept}
        result = {"pairs": PAIRS, "d": D, "after": after, **before}
    if call.before:
        result["before"] = older(call.before, list(ROWS))
        add_messages(result["before"], call.before)
        git = ["git", "-C", call.before, "rev-parse", "HEAD"]
        result["commit before"] = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    result["growth"] = growth()
    show(result)
    print(save("device", result, "python benchmarks/device.py --before OLD/src"))


if __name__ == "__main__":
    main()
