"""Where the time of a training step goes: augmentation, forward, objective, backward, optimiser.

    python benchmarks/train_step.py            batch 256, 32 x 32 pixels, two threads

Each part is timed by itself, the best of several rounds in which all parts take turns; a step is
their sum. The objective's part is its value and its gradient with respect to the embeddings. The
pictures are noise: no part's time depends on what they show.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

import chiaroscuro as cs
from chiaroscuro.engine.networks import build
from chiaroscuro.engine.optimisers import optimiser
from chiaroscuro.engine.stream import Steps
from environment import interleave, save

PARTS = ("augmentation", "forward", "objective", "backward", "optimiser")
ENCODERS = (
    "ResNet(depth=18, width=0.25, stem='small')",
    "ResNet(depth=9, width=0.25, stem='strided')",
)


def parts(encoder: str, batch: int) -> dict[str, Callable[[], object]]:
    """One function for each part of a step of SimCLR with this encoder."""
    settings = cs.engine.read_settings("simclr", [f'network.encoder="{encoder}"', f"batch={batch}"])
    pictures = np.random.default_rng(0).integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8)
    data = cs.data.from_arrays({"images": pictures})
    batches = Steps.of(settings, data, takes_labels=False, rank=0, world=1)
    networks, objective = build(settings.network, 0), settings.make_objective()
    moved = build(settings.network, 0)  # other weights: those of a graph must stay as they are
    moves = optimiser(settings.optimiser, moved, objective)
    for p in moved.parameters():
        p.grad = torch.full_like(p, 1e-3)
    x1, x2, _ = batches[0]
    z1, z2 = networks(x1, x2)
    leaves = [z.detach().requires_grad_() for z in (z1, z2)]
    slopes = torch.autograd.grad(objective(*leaves), leaves)

    def backward() -> None:
        networks.zero_grad(set_to_none=True)
        torch.autograd.backward([z1, z2], slopes, retain_graph=True)

    return {
        "augmentation": lambda: batches[0],
        "forward": lambda: networks(x1, x2),
        "objective": lambda: torch.autograd.grad(objective(*leaves), leaves),
        "backward": backward,
        "optimiser": moves.step,
    }


def measure(encoder: str, batch: int, rounds: int) -> dict[str, object]:
    """Milliseconds and shares of each part, and images a second."""
    seconds = interleave(parts(encoder, batch), rounds)
    step = sum(seconds.values())
    share = {part: seconds[part] / step for part in PARTS}
    return {
        "encoder": encoder,
        "batch": batch,
        "images_per_second": batch / step,
        "milliseconds": {part: 1e3 * seconds[part] for part in PARTS},
        "share": share,
        "augmentation_and_objective": share["augmentation"] + share["objective"],
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--batch", type=int, default=256)
    asked.add_argument("--rounds", type=int, default=12)
    asked.add_argument("--threads", type=int, default=2)
    given = asked.parse_args()
    torch.set_num_threads(given.threads)
    found = []
    for encoder in ENCODERS:
        one = measure(encoder, given.batch, given.rounds)
        shares = ", ".join(f"{part} {100 * one['share'][part]:.1f} %" for part in PARTS)
        print(f"{encoder}: {one['images_per_second']:.0f} images/s; {shares}", flush=True)
        found.append(one)
    print(save("train_step", found, f"python benchmarks/train_step.py --batch {given.batch}"))


if __name__ == "__main__":
    main()
