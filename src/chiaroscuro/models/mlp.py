"""The multilayer perceptron."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from chiaroscuro.errors import need
from chiaroscuro.models.model import Model, one_of, positive

__all__ = ["ACTIVATIONS", "INITS", "MLP", "NORMALISATIONS", "perceptron", "rows"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}
NORMALISATIONS: dict[str, type[nn.Module] | None] = {
    "none": None,
    "batch": nn.BatchNorm1d,
    "layer": nn.LayerNorm,
}
INITS = ("he", "orthogonal", "torch")
_GAINS = {"tanh": 5 / 3, "leaky_relu": math.sqrt(2 / (1 + 0.01**2))}


class MLP(Model):
    """Multilayer perceptron.

        h = W_depth a(... a(W_1 x + b_1) ...) + b_depth

    `depth` counts the linear layers; 1 is a linear map. A sample of any shape is flattened first.

    Relations: `MLP(d_in, d, depth=1)` has the layers of `Projector(d_in, d, depth=1, last="none")`.

    Args:
        d_in: numbers per sample.
        d: dimension of the output.
        depth, width: 3 layers of 512, plain values without a paper behind them.
        activation: "relu", "leaky_relu" (slope 0.01), "gelu", "silu" or "tanh".
        normalisation: "none", "batch" or "layer", before each activation.
        init: "he" (normal, gain of the activation), "orthogonal" (same gain; narrow deep nets
            train with it and may not without [rusak2022]), or "torch" for its own default.

    Numerics: with "batch" a training batch needs at least two samples.

    References:
        rusak2022

    Example:
        >>> MLP(d_in=10, d=4)(torch.zeros(3, 2, 5)).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        d_in: int,
        d: int = 128,
        depth: int = 3,
        width: int = 512,
        activation: str = "relu",
        normalisation: str = "none",
        init: str = "he",
    ):
        super().__init__()
        positive(self, d_in=d_in, d=d, depth=depth, width=width)
        one_of(self, "activation", activation, ACTIVATIONS)
        one_of(self, "normalisation", normalisation, NORMALISATIONS)
        one_of(self, "init", init, INITS)
        self.d_in, self.d, self.depth, self.width = d_in, d, depth, width
        self.activation, self.normalisation, self.init = activation, normalisation, init
        sizes = [d_in, *[width] * (depth - 1), d]
        self.layers = perceptron(sizes, activation, normalisation, init)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(rows(self, x, self.d_in, self.normalisation == "batch"))

    def example(self, n: int = 2) -> Tensor:
        return torch.zeros(n, self.d_in)


def perceptron(
    sizes: list[int], activation: str, normalisation: str, init: str, last_bias: bool = True
) -> nn.Sequential:
    """Return linear layers from `sizes[0]` to `sizes[-1]`; a bias that a BatchNorm would undo is
    left out.

    Example:
        >>> len(perceptron([4, 8, 2], "relu", "batch", "he"))  # linear, batch, relu, linear
        4
    """
    layers: list[nn.Module] = []
    normal = NORMALISATIONS[normalisation]
    for at, (d_in, d_out) in enumerate(itertools.pairwise(sizes)):
        last = at == len(sizes) - 2
        linear = nn.Linear(d_in, d_out, bias=last_bias if last else normalisation != "batch")
        _initialise(linear, 1.0 if last else _GAINS.get(activation, math.sqrt(2)), init)
        layers.append(linear)
        if not last:
            layers += [normal(d_out)] if normal else []
            layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)


def _initialise(linear: nn.Linear, gain: float, init: str) -> None:
    if init == "torch":
        return
    if init == "orthogonal":
        nn.init.orthogonal_(linear.weight, gain)
    else:
        nn.init.normal_(linear.weight, std=gain / math.sqrt(linear.in_features))
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def rows(model: nn.Module, x: Tensor, d_in: int, batch_norm: bool) -> Tensor:
    """Return the samples as rows (n, d_in), or a sentence about what they are instead."""
    name = type(model).__name__
    need(
        isinstance(x, Tensor) and x.ndim >= 2 and x.is_floating_point(),
        lambda: (
            f"`{name}` needs floating-point samples (n, {d_in}); received "
            + (f"{x.dtype} of shape {tuple(x.shape)}." if isinstance(x, Tensor) else f"`{x!r}`.")
        ),
    )
    size = math.prod(x.shape[1:])
    need(
        size == d_in,
        lambda: (
            f"`{name}(d_in={d_in})` needs {d_in} numbers per sample; received "
            f"{tuple(x.shape)}, which has {size}."
        ),
    )
    need(
        not (batch_norm and model.training and len(x) == 1),
        lambda: (
            f"`{name}` with a BatchNorm needs at least 2 samples in a training batch; received "
            "1, whose variance is 0. Take a larger batch."
        ),
    )
    return x.flatten(1)
