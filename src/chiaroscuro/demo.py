"""The main job, small: one objective after the other pulls a planted structure out of noise."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch
from torch import Tensor

import chiaroscuro as cs

__all__ = ["main", "untangle"]

CLUSTERS, SIZE, DIMENSION = 6, 32, 16
STEPS, PAIRS, RATE = 200, 96, 0.05


def main(out: str | None = None) -> None:
    """Learn free embeddings of six hidden groups with several objectives; print what each does.

    The objectives see nothing but pairs: two members of the same group, drawn at random. Purity is
    the share of points whose nearest neighbour belongs to their own group.
    """
    objectives = {
        "NT-Xent": cs.InfoNCE(cs.Cosine(tau=0.5), cs.AllButSelf()),
        "decoupled": cs.InfoNCE(cs.Cosine(tau=0.5), cs.AllButPair()),
        "Gaussian": cs.InfoNCE(cs.Gaussian(tau=0.5)),
        "Laplace": cs.InfoNCE(cs.Laplace(tau=0.5)),
        "Sum kernel": cs.InfoNCE(cs.Sum(cs.Gaussian(tau=0.5), cs.Laplace(tau=0.5))),
        "spectral": cs.SpectralContrastive(),
        "VICReg": cs.VICReg(),
    }
    print(
        f"{CLUSTERS} hidden groups of {SIZE} points, known only through pairs; {STEPS} steps each"
    )
    print(
        f"{'objective':12s} {'loss':>18s} {'attract':>9s} {'repel':>9s} {'purity':>14s} {'s':>5s}"
    )
    rows = {}
    for name, objective in objectives.items():
        row = rows[name] = untangle(objective) | {"objective": repr(objective)}
        print(
            f"{name:12s} {row['loss'][0]:8.3f} -> {row['loss'][1]:6.3f} {row['attract']:9.3f} "
            f"{row['repel']:9.3f} {row['purity'][0]:6.2f} -> {row['purity'][1]:4.2f} "
            f"{row['seconds']:5.1f}"
        )
    if out is not None:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "demo.json"
        path.write_text(json.dumps(rows, indent=2) + "\n")
        print(f"numbers: {path}")


def untangle(objective: cs.Objective, seed: int = 0) -> dict:
    """Gradient descent on free embeddings, fed with random pairs of the same group."""
    draw = torch.Generator().manual_seed(seed)
    group = torch.arange(CLUSTERS * SIZE) % CLUSTERS
    z = torch.randn(len(group), DIMENSION, generator=draw).requires_grad_()
    optimiser = torch.optim.Adam([z], lr=RATE)
    started = time.perf_counter()
    before, first = purity(z, group), 0.0
    for _ in range(STEPS):
        one = torch.randperm(len(group), generator=draw)[:PAIRS]
        other = group[one] + CLUSTERS * torch.randint(SIZE, (PAIRS,), generator=draw)
        loss = objective(z[one], z[other])
        first = first or loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    terms = {name: term.item() for name, term in objective.terms(z[one], z[other]).items()}
    return terms | {
        "loss": [first, loss.item()],
        "purity": [before, purity(z, group)],
        "seconds": time.perf_counter() - started,
    }


def purity(z: Tensor, group: Tensor) -> float:
    """The share of rows whose nearest neighbour (in cosine) is of their own group."""
    u = torch.nn.functional.normalize(z.detach())
    nearest = (u @ u.T).fill_diagonal_(-torch.inf).argmax(dim=1)
    return (group[nearest] == group).float().mean().item()
