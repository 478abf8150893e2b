"""Trainings inside labs go through the library's loop, and are what one would write by hand."""

import ast
from pathlib import Path

import torch
from torch import nn

import chiaroscuro as cs
from chiaroscuro.labs.trained import fitted, linear

PACKAGE = Path(cs.__file__).parent

OWN_LOOPS = {
    "finetuning/supervised.py": "handed to `engine.fit`",
    "labs/semantic2025/_modular.py": "K learners take the steps of one optimiser together",
    "labs/semantic2025/equal_rows.py": "an expected loss without pairs, minimised by LBFGS",
    "labs/semantic2025/forgetting.py": "by `engine.fit`, but for an expected and for no loss",
    "diagnostics/assembly/probe.py": "a convex probe, minimised by LBFGS",
    "engine/optimisers.py": "the optimisers of the loop itself",
    "labs/trained.py": "handed to `engine.fit`",
    "labs/semantic2025/words.py": "handed to `engine.fit`",
}
"""Files that make an optimiser of torch, and why."""


def makes_an_optimiser(path: Path) -> bool:
    """Whether code calls a class of `torch.optim`, not counting schedulers and doctests."""
    calls = (
        node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    )
    names = (ast.unparse(call) for call in calls)
    return any(n.startswith("torch.optim.") and "lr_scheduler" not in n for n in names)


def test_there_is_one_loop():
    files = {str(p.relative_to(PACKAGE)): p for p in PACKAGE.rglob("*.py")}
    assert {name for name, path in files.items() if makes_an_optimiser(path)} == OWN_LOOPS.keys()


def test_a_fit_is_the_loop_that_one_would_write():
    draw = lambda seed: tuple(torch.randn(2, 8, 3, generator=torch.Generator().manual_seed(seed)))
    W = torch.randn(2, 3, generator=torch.Generator().manual_seed(9), dtype=torch.float32)
    objective, seen = cs.InfoNCE(cs.Dot(tau=1.0), cs.SameView(), anchors="first"), []
    layer = linear(W)
    look = lambda: seen.append(layer.weight.detach().clone())
    fitted(layer, objective, draw, 6, 0.1, look, every=2)
    by_hand = nn.Parameter(W.clone())
    adam = torch.optim.Adam([by_hand], lr=0.1)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, 6)
    expected = [W.clone()]
    for step in range(6):
        x1, x2 = draw(step)
        adam.zero_grad()
        objective(x1 @ by_hand.T, x2 @ by_hand.T).backward()
        adam.step()
        falling.step()
        if step % 2:
            expected.append(by_hand.detach().clone())
    assert len(seen) == len(expected) == 4
    for a, b in zip(seen, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
