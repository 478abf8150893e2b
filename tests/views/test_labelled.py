"""Contexts with labels: what they show; the loss against a loop; what labels add to the optimum."""

import math

import numpy as np
import pytest
import torch

from chiaroscuro import Dot, InfoNCE, OtherView
from chiaroscuro.errors import InputError
from chiaroscuro.views import LabelledContext, PatchSplit, TokenSplit

SYMBOL_CONTEXT = InfoNCE(Dot(tau=1.0), OtherView(), anchors="first")


@pytest.mark.parametrize("classes", [2, 5, 9])
@pytest.mark.parametrize("kind", ["uint8", "float"])
def test_the_hole_shows_the_label_and_nothing_else_changes(classes, kind):
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(1, 255, (classes, 3, 12, 12), generator=draw).byte()
    x = x if kind == "uint8" else x / 255
    split = PatchSplit(patch=4)
    view, labels = LabelledContext(split, classes), torch.arange(classes)
    ids = [3] * classes  # the same hole for all
    plain, where = split(x, ids, view=1)
    contexts, again = view((x, labels), ids, view=1)
    assert (where == again).all()
    top, left = int(where["top"][0]), int(where["left"][0])
    hole = (slice(None), slice(None), slice(top, top + 4), slice(left, left + 4))
    shown = contexts[hole].clone()
    outside = contexts.clone()
    outside[hole] = 0
    assert torch.equal(outside, plain)
    codes = {tuple(code.flatten().tolist()) for code in shown}
    assert len(codes) == classes
    assert shown.max() == (255 if kind == "uint8" else 1)
    symbols = view((x, labels), ids, view=0)[0]
    assert torch.equal(symbols, split(x, ids, view=0)[0])


def test_a_token_is_appended():
    x = torch.tensor([[5, 6, 0], [7, 8, 9]])
    view = LabelledContext(TokenSplit(mask=1, padding=0), classes=3, first=20)
    contexts, where = view((x, np.array([2, 0])), ids=[0, 1], view=1)
    assert contexts[:, 3].tolist() == [22, 20]
    back = contexts[:, :3].clone()
    symbols = view((x, np.array([2, 0])), ids=[0, 1], view=0)[0]
    back[torch.arange(2), torch.from_numpy(where["position"])] = symbols
    assert torch.equal(back, x)


def test_symbols_come_from_the_positions_asked_for():
    x = torch.arange(300).view(100, 3)
    _, where = TokenSplit(mask=999, positions=(0, 2))(x, range(100))
    assert set(where["position"].tolist()) == {0, 2}
    with pytest.raises(InputError, match="at least 4 tokens; received 3"):
        TokenSplit(mask=1, positions=(3,))(x, range(100))
    with pytest.raises(InputError, match="places from 0"):
        TokenSplit(mask=1, positions=())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: LabelledContext(TokenSplit(1), 3), "received None"),
        (lambda: LabelledContext(PatchSplit(2), 10), "at least 4 pixels a side.*received 2"),
        (lambda: LabelledContext(PatchSplit(4), 1), "at least 2 classes; received 1"),
        (lambda: LabelledContext(OtherView(), 2), "received `OtherView`"),
        (
            lambda: LabelledContext(PatchSplit(4), 2)(torch.zeros(2, 3, 8, 8), [0, 1]),
            r"pair \(samples, labels\)",
        ),
        (
            lambda: LabelledContext(PatchSplit(4), 2)(
                (torch.zeros(2, 3, 8, 8), torch.tensor([0, -1])), [0, 1]
            ),
            "from -1 to 0",
        ),
    ],
)
def test_sentences(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


# ---- the objective ----


def test_the_loss_is_equation_2():
    """-(1/n) sum_i log( exp(s_i . c_i) / sum_j exp(s_i . c_j) ), c_i of context and label."""
    rng = np.random.default_rng(0)
    symbols, contexts = rng.normal(size=(4, 3)), rng.normal(size=(5, 2, 3))
    sigma, rho, y = rng.integers(0, 4, 20), rng.integers(0, 5, 20), rng.integers(0, 2, 20)
    total = 0.0
    for i in range(20):
        terms = [
            math.exp(sum(symbols[sigma[i], k] * contexts[rho[j], y[j], k] for k in range(3)))
            for j in range(20)
        ]
        total -= math.log(terms[i] / sum(terms)) / 20
    z1, z2 = torch.tensor(symbols[sigma]), torch.tensor(contexts[rho, y])
    assert float(SYMBOL_CONTEXT(z1, z2)) == pytest.approx(total, rel=1e-6)


def best_symbols(counts, codes):
    """The table of symbol vectors that minimises the loss over a batch with these counts.

    counts (symbols, contexts): how often each pair occurs; codes (contexts, d): fixed. Of each
    symbol the loss is -sum_c p(c | symbol) e . code_c + log sum_c p(c) exp(e . code_c): strictly
    convex in e if the codes span the space affinely, and a function of p(c | symbol) alone.
    """
    pairs = counts.nonzero().repeat_interleave(counts[counts > 0], dim=0)
    start = torch.randn(len(counts), codes.shape[1], generator=torch.Generator().manual_seed(1))
    table = start.double().requires_grad_(True)
    solver = torch.optim.LBFGS(
        [table],
        max_iter=500,
        tolerance_grad=1e-9,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        solver.zero_grad()
        loss = SYMBOL_CONTEXT(table[pairs[:, 0]], codes[pairs[:, 1]])
        loss.backward()
        return loss

    solver.step(closure)
    return table.detach()


def test_what_labels_add():
    """u and v are equivalent; w occurs in the same contexts, and means another label there."""
    # (symbol, context, label): p(context | symbol) is the same for u, v and w, another for x
    counts = torch.tensor(
        [
            [[3, 1], [2, 2], [1, 3], [2, 2]],
            [[6, 2], [4, 4], [2, 6], [4, 4]],  # v is twice as frequent as u
            [[1, 3], [2, 2], [3, 1], [1, 3]],
            [[1, 2], [4, 5], [1, 1], [2, 0]],
        ]
    )
    draw = torch.Generator().manual_seed(0)
    codes = torch.randn(8, 2, generator=draw, dtype=torch.float64)
    u, v, w, x = best_symbols(counts.flatten(1), codes)
    assert float((u - v).norm()) < 1e-4
    assert min(float((u - other).norm()) for other in (w, x)) > 0.1
    u, v, w, x = best_symbols(counts.sum(dim=2), codes[:4])
    assert max(float((u - v).norm()), float((u - w).norm())) < 1e-4
    assert float((u - x).norm()) > 0.1
