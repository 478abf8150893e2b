"""Learning modular addition: contrastive learners of symbols, and the task downstream of them.

Shared by the labs of Secs 5 and A.6. Learners of one shape train side by side in a `Stack`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import chiaroscuro as cs
from chiaroscuro.labs.semantic2025._stack import Stack

__all__ = [
    "Learner",
    "N",
    "Solver",
    "contrasted",
    "downstream",
    "floor",
    "training_pairs",
    "within",
]

N, K = 16, 8
CLASSES = np.arange(N) % K
"""The meaning of each symbol in the task downstream, `mod_add(16, 8)`."""


@dataclass(frozen=True)
class Learner:
    """How a learner of symbols is built and trained.

    Args:
        d: dimension of symbols and contexts; 8 [semantic2025, Sec. 5].
        start: deviation of the symbols at the start; 1, torch's own [App. A.8], or 0.02.
        width, depth, heads: of the transformer; three layers [Sec. 5], the others ours.
        optimiser: "adamw" decays the weights by themselves, "adam" through the gradient.
        lr, weight_decay: 1e-4 and 1e-2 in Sec. 5.
        positions: False hides from the encoder which token is where.
    """

    d: int = 8
    start: float = 1.0
    width: int = 32
    depth: int = 3
    heads: int = 4
    optimiser: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 1e-2
    positions: bool = True


# a loop of its own: K learners, each with its own decay, take one step of one optimiser together
class Solver:
    """Adam on parameters (K, ...) stacked by learner, each learner with its own decay.

    Args:
        learners: one a row, all of one learning rate.
        parameters: whose first dimension is the learner.
        frozen: parameters that learners without positions do not train.
    """

    def __init__(
        self, learners: Sequence[Learner], parameters: list[Tensor], frozen: Sequence[Tensor] = ()
    ):
        rates = {learner.lr for learner in learners}
        if len(rates) != 1:
            raise ValueError(f"learners of one stack share a learning rate, got {sorted(rates)}")
        self.parameters, self.frozen = parameters, frozen
        self.adam = torch.optim.Adam(parameters, lr=rates.pop(), fused=True)
        self.positions = torch.tensor([float(learner.positions) for learner in learners])
        decay = torch.tensor([learner.weight_decay for learner in learners])
        coupled = torch.tensor([learner.optimiser == "adam" for learner in learners])
        self.coupled = decay * coupled
        self.kept = 1 - learners[0].lr * decay * ~coupled

    @torch.no_grad()
    def step(self, loss: Tensor) -> None:
        """One step down the gradient of the loss, a sum over learners."""
        self.adam.zero_grad()
        with torch.enable_grad():
            loss.backward()
        for p in self.frozen:
            p.grad *= _over(self.positions, p)  # type: ignore[operator]
        for p in self.parameters:
            if self.coupled.any():
                p.grad.addcmul_(p, _over(self.coupled, p))  # type: ignore[union-attr]
            p.mul_(_over(self.kept, p))
        self.adam.step()


def _over(values: Tensor, p: Tensor) -> Tensor:
    """One value a learner, in the shape that spreads over the parameters."""
    return values.view(-1, *(1,) * (p.dim() - 1))


def training_pairs(seed: int) -> np.ndarray:
    """Which sums (a, b) are for training, (N, N): 80 % of all [Sec. 5]."""
    split = cs.data.modular_addition(N, K, test=0.2, seed=seed).split
    return (np.asarray(split) == 0).reshape(N, N)


def within(task: cs.data.SymbolTask, seed: int) -> cs.data.SymbolTask:
    """The contrastive task on the training sums alone."""
    rows, symbols = task.contexts, np.arange(N)
    first = rows[:, 0] == N  # the first addend is masked
    other = np.where(first, rows[:, 1], rows[:, 0])[:, None]
    a = np.where(first[:, None], symbols, other)
    b = np.where(first[:, None], other, symbols)
    return task.where(training_pairs(seed)[a, b])


def floor(task: cs.data.SymbolTask, batch: int, batches: int = 2000) -> float:
    """The infimum of eq. (2) over all similarities, at a batch: that of log p(c|u) / p(c).

    A mean over drawn batches, with a fixed seed; its standard error is below 0.005.
    """
    p = task.pairs()
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(p) - np.log(p.sum(0)) - np.log(p.sum(1, keepdims=True))
    symbols, contexts = (x.reshape(-1, batch) for x in task.sample(batches * batch)[:2])
    S = torch.from_numpy(information[contexts[:, None, :], symbols[:, :, None]])
    return float((S.logsumexp(dim=2) - S.diagonal(dim1=1, dim2=2)).mean())


def seeded(seed: int, make: Any) -> Any:
    """What `make()` draws from torch's generator under a seed; the generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def _transformer(learner: Learner, n_tokens: int, length: int, width: int, out: int) -> Any:
    """A library's transformer with torch's own initial weights, and a linear layer behind it."""
    net = cs.models.SequenceTransformer(
        n_tokens=n_tokens, length=length, d=width, depth=learner.depth, heads=learner.heads
    )
    for part in net.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight)
    if not learner.positions:
        nn.init.zeros_(net.positions.weight)
    return net, nn.Linear(width, out)


@contextmanager
def without_subnormals() -> Iterator[None]:
    """Take subnormal numbers for 0: moments of weights without a gradient end there, and a CPU
    multiplies them so slowly that a step takes six times as long."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@without_subnormals()
def contrasted(
    tasks: Sequence[cs.data.SymbolTask],
    seeds: Sequence[int],
    learner: Learner | Sequence[Learner],
    steps: int,
    batch: int = 32,
    looks: int = 40,
) -> list[dict[str, Any]]:
    """Train a table of symbols and an encoder of contexts by eq. (2) on each task.

    Each step draws a batch from each task's law. Of each learner: distances of equivalent and of
    other symbols, their ratio, the share of symbols with an equivalent neighbour and the loss, at
    some steps; and the rows at the end. Learners may differ in all but shape and learning rate.
    """
    learners = [learner] * len(seeds) if isinstance(learner, Learner) else learner
    made = [
        seeded(s, lambda one=one: _transformer(one, N + 1, 3, one.width, one.d))
        for s, one in zip(seeds, learners, strict=True)
    ]
    stack = Stack([net for net, _ in made], [head for _, head in made])
    encode = stack.called(steps)
    table = torch.stack(
        [
            one.start * torch.randn(N, one.d, generator=torch.Generator().manual_seed(s))
            for s, one in zip(seeds, learners, strict=True)
        ]
    ).requires_grad_()
    solver = Solver(learners, [*stack.parameters(), table], frozen=[stack["positions.weight"]])
    most = max(task.n_contexts for task in tasks)
    laws, contexts = torch.zeros(len(tasks), most * N), torch.zeros(len(tasks), most, 3).long()
    for i, task in enumerate(tasks):
        laws[i, : task.pairs().size] = torch.from_numpy(task.pairs().ravel()).float()
        contexts[i, : task.n_contexts] = torch.from_numpy(task.contexts)
    upto = laws.double().cumsum(dim=1)
    upto /= upto[:, -1:].clone()
    generator = torch.Generator().manual_seed(int(seeds[0]))
    model = torch.arange(len(tasks))[:, None]
    marks = set(np.linspace(0, steps, looks + 1).round().astype(int).tolist())
    records: list[dict[str, Any]] = [{} for _ in tasks]
    recent = torch.zeros(len(tasks))
    count = 0
    for step in range(steps + 1):
        u = torch.rand(len(tasks), batch, generator=generator, dtype=torch.float64)
        at = torch.searchsorted(upto, u, right=True).clamp_(max=most * N - 1)
        symbols, which = at % N, at.div(N, rounding_mode="floor")
        h, z = table[model, symbols], encode(contexts[model, which])
        S = torch.bmm(h, z.transpose(1, 2))
        losses = (S.logsumexp(dim=2) - S.diagonal(dim1=1, dim2=2)).mean(dim=1)
        recent += losses.detach()
        count += 1
        if step in marks:
            _look(records, step, table.detach(), recent / count)
            recent.zero_()
            count = 0
        if step < steps:
            solver.step(losses.sum())
    for record, rows in zip(records, table.tolist(), strict=True):
        record["h"] = [[round(x, 6) for x in row] for row in rows]
    return records


def _look(records: list[dict[str, Any]], step: int, table: Tensor, losses: Tensor) -> None:
    for record, h, loss in zip(records, table, losses.tolist(), strict=True):
        ratio = cs.diagnostics.semantic_ratio(h, CLASSES)
        seen = {
            "step": step, "ratio": ratio.ratio, "equivalent": ratio.equivalent,
            "other": ratio.other, "nearest": ratio.nearest, "loss": loss,
        }  # fmt: skip
        for name, value in seen.items():
            record.setdefault(name, []).append(round(value, 6))


@without_subnormals()
def downstream(
    tables: Sequence[Any],
    seeds: Sequence[int],
    learner: Learner,
    steps: int,
    batch: int = 32,
    looks: int = 40,
) -> list[dict[str, Any]]:
    """Train the task ModAdd from given rows of the symbols; accuracy on the sums held out.

    Of each: `step`, `accuracy` and the mean of the latter, `area`, the area under the curve.
    """
    d = len(tables[0][0])
    made = [seeded(s, lambda: _transformer(learner, N, 2, d, K)) for s in seeds]
    stack = Stack([net for net, _ in made], [head for _, head in made])
    with torch.no_grad():
        stack["tokens.weight"].copy_(torch.tensor(tables))
    classify = stack.called(steps)
    solver = Solver([learner] * len(seeds), list(stack.parameters()))
    a, b = torch.from_numpy(np.stack(np.divmod(np.arange(N * N), N)))
    pairs, labels = torch.stack([a, b], dim=1), (a + b) % K
    known = [torch.from_numpy(training_pairs(s).ravel()) for s in seeds]
    rows = torch.stack([side.nonzero().flatten() for side in known])
    held = torch.stack([(~side).nonzero().flatten() for side in known])
    generator = torch.Generator().manual_seed(int(seeds[0]))
    marks = np.linspace(0, steps, looks + 1).round().astype(int).tolist()
    curves = []
    for step in range(steps + 1):
        if step in marks:
            with torch.no_grad():
                guess = stack(pairs[held]).argmax(dim=2)
            curves.append((guess == labels[held]).float().mean(dim=1).tolist())
        if step < steps:
            at = rows.gather(
                1, torch.randint(rows.shape[1], (len(rows), batch), generator=generator)
            )
            loss = F.cross_entropy(classify(pairs[at]).flatten(0, 1), labels[at].flatten())
            solver.step(loss * len(rows))
    return [
        {"step": marks, "accuracy": [round(x, 6) for x in curve], "area": float(np.mean(curve))}
        for curve in zip(*curves, strict=True)
    ]
