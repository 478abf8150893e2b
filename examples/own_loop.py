"""Use an objective of Chiaroscuro in a plain PyTorch training loop.

    python examples/own_loop.py

Nothing but the loss comes from here: the model, the data, the optimiser and the loop are yours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import chiaroscuro as cs


class NoisyPoints(Dataset):
    """Points of eight clusters in twenty dimensions; an item is two noisy copies of one."""

    def __init__(self, n: int = 512, seed: int = 0):
        draw = torch.Generator().manual_seed(seed)
        centres = 3 * torch.randn(8, 20, generator=draw)
        self.labels = torch.arange(n) % 8
        self.points = centres[self.labels] + torch.randn(n, 20, generator=draw)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x = self.points[row]
        return x + 0.5 * torch.randn(20), x + 0.5 * torch.randn(20)


def main(epochs: int = 10) -> list[float]:
    """Train a small network and return the mean loss of every epoch."""
    torch.manual_seed(0)
    loader = DataLoader(NoisyPoints(), batch_size=64, shuffle=True, drop_last=True)
    encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
    objective = cs.InfoNCE(cs.Gaussian(tau=0.5), cs.AllButPair())
    optimiser = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    means = []
    for epoch in range(epochs):
        losses = []
        for x1, x2 in loader:
            optimiser.zero_grad()
            loss = objective(encoder(x1), encoder(x2))
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        means.append(sum(losses) / len(losses))
        print(f"epoch {epoch + 1}: loss {means[-1]:.4f}")
    return means


if __name__ == "__main__":
    main()
