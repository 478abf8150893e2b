"""Many small transformers at once: for networks this small, calls cost more than arithmetic.

`Stack` holds the parameters of K `SequenceTransformer`s of one shape, each with a linear layer
behind it, and computes all of them in the calls of one; a test compares it with the K themselves.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import stack_module_state

import chiaroscuro as cs

__all__ = ["MANY", "Stack"]

MANY = 20_000
"""Steps from which compiling is worth its time."""


class Stack(nn.Module):
    """K encoders of token sequences: embedding, transformer blocks, mean, a linear layer.

    Args:
        models: `SequenceTransformer`s built alike, pool "mean", no padding, no dropout.
        heads: a linear layer for each.
    """

    def __init__(self, models: list[cs.models.SequenceTransformer], heads: list[nn.Linear]):
        super().__init__()
        first = models[0]
        self.depth, self.heads, self.d = first.depth, first.heads, first.d
        trunk, _ = stack_module_state(models)
        last, _ = stack_module_state(heads)
        named = {**trunk, **{f"head.{name}": value for name, value in last.items()}}
        self.names = {name: name.replace(".", "_") for name in named}
        self.p = nn.ParameterDict(
            {self.names[name]: nn.Parameter(value.detach()) for name, value in named.items()}
        )

    def called(self, steps: int) -> Any:
        """Return what so many steps should call: the stack, compiled if they are many.

        Compiling takes half a minute on one core and saves a third of each step. It needs a C++
        compiler and Python's headers; without them the stack itself is returned.
        """
        names = (os.environ.get("CXX"), "c++", "g++", "clang++")
        compiler = any(shutil.which(name) for name in names if name)
        headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
        if steps < MANY or not (compiler and headers):
            return self
        torch.compiler.reset()  # else the ninth stack of a process would not be compiled
        return torch.compile(self, dynamic=False)

    def __getitem__(self, name: str) -> Tensor:
        return self.p[self.names[name]]

    def forward(self, tokens: Tensor) -> Tensor:
        """Outputs (K, n, out) of tokens (K, n, t)."""
        K, n, t = tokens.shape
        table = self["tokens.weight"]
        rows = torch.arange(K)[:, None, None]
        x = table[rows, tokens] + self["positions.weight"][:, None, :t]
        x = x.reshape(K, n * t, self.d)
        for i in range(self.depth):
            x = self._block(x, f"blocks.{i}", n, t)
        x = self._norm(x, "norm").view(K, n, t, self.d).mean(dim=2)
        return self._linear(x, "head")

    def _block(self, x: Tensor, name: str, n: int, t: int) -> Tensor:
        K, each = len(x), self.d // self.heads
        y = self._linear(self._norm(x, f"{name}.norm1"), f"{name}.attn.qkv")
        q, k, v = y.view(K * n, t, 3, self.heads, each).unbind(2)
        # of two or three tokens: products one by one are twice as fast as fused attention
        weights = ((q[:, :, None] * k[:, None]).sum(-1) * each**-0.5).softmax(2)
        y = (weights[..., None] * v[:, None]).sum(2).view(K, n * t, self.d)
        x = x + self._linear(y, f"{name}.attn.proj")
        y = F.gelu(self._linear(self._norm(x, f"{name}.norm2"), f"{name}.mlp.fc1"))
        return x + self._linear(y, f"{name}.mlp.fc2")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self[f"{name}.weight"], self[f"{name}.bias"]
        return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        y = F.layer_norm(x, (self.d,), eps=1e-6)
        return torch.addcmul(self[f"{name}.bias"][:, None], y, self[f"{name}.weight"][:, None])
