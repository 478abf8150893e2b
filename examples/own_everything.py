"""Train your own module on your own dataset, with your own kernel and view; then look at it.

    python examples/own_everything.py

Objects that have no notation (the module, the dataset, the kernel, the view) are recorded in the
run by import path, shapes and a fingerprint. Whatever opens the run later asks for them by name.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import chiaroscuro as cs


class Shapes(Dataset):
    """Grey images of 12 x 12 with a bar that lies or stands, somewhere; an item has its label."""

    def __init__(self, n: int = 256, seed: int = 0):
        draw = torch.Generator().manual_seed(seed)
        self.places = torch.randint(1, 11, (n,), generator=draw)
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        image = torch.zeros(3, 12, 12)
        place, stands = int(self.places[row]), row % 2
        if stands:
            image[:, :, place] = 1.0
        else:
            image[:, place, :] = 1.0
        return image, stands


class Net(nn.Module):
    """A convolutional encoder of one's own."""

    def __init__(self, d: int = 16):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU()),
            *(nn.Flatten(), nn.LazyLinear(d)),
        )
        self.layers(torch.zeros(1, 3, 12, 12))  # sizes the last layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class RationalQuadratic(cs.Kernel):
    """log k(z, w) = -alpha log(1 + |z - w|^2 / alpha): heavy tails, as in t-SNE."""

    def __init__(self, alpha: float = 1.0):
        super().__init__()
        self.alpha = alpha

    def log(self, z: Tensor, w: Tensor) -> Tensor:
        return -self.alpha * torch.log1p(torch.cdist(z, w).square() / self.alpha)


def shifted_and_noisy(image: Tensor) -> Tensor:
    """Shift an image by up to two pixels around its edge, and add noise."""
    dy, dx = torch.randint(-2, 3, (2,)).tolist()
    return image.roll((dy, dx), dims=(1, 2)) + 0.1 * torch.randn(image.shape)


def main(folder: str | None = None, epochs: int = 5) -> dict[str, Any]:
    """Train, embed, diagnose and report; return where the page is and what was measured."""
    out = Path(folder or tempfile.mkdtemp()) / "run"
    torch.manual_seed(0)
    settings = {
        "epochs": epochs,
        "batch": 64,
        "optimiser": {"name": "adamw", "lr": 3e-3},
        "schedule": {"warmup": 0.0},
    }
    run = cs.train(
        settings,
        out,
        data=Shapes(),
        encoder=Net(),
        projector=nn.Linear(16, 8),
        objective=cs.InfoNCE(RationalQuadratic()),
        view=shifted_and_noisy,
    )
    # another process would do the same: the folder knows what it needs, and asks for it
    opened = cs.engine.open_run(
        run,
        data=Shapes(),
        encoder=Net(),
        projector=nn.Linear(16, 8),
        objective=cs.InfoNCE(RationalQuadratic()),
        view=shifted_and_noisy,
    )
    embeddings = cs.embed(opened)
    embeddings.save(run.embeddings("all"))
    diagnosis = cs.diagnose(opened)
    page = cs.report(run)
    print(f"embeddings {embeddings.h.shape}, {diagnosis.verdict}\npage: {page}")
    return {"page": page, "measures": diagnosis.measures, "embeddings": embeddings}


if __name__ == "__main__":
    main()
