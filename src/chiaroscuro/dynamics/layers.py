"""What a layer's inputs and the gradients of its outputs say about its parameters' gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chiaroscuro.dynamics.factors import Factor, Outer, Rows

__all__ = ["LAYERS", "factor_of"]

_Call = tuple[Tensor, Tensor]
"""Inputs (n, ...), and gradients of the outputs (n, d, ...)."""


def factor_of(layer: Any, calls: list[_Call]) -> Factor:
    """Return the gradients by a layer's trainable parameters, from all the calls it had."""
    return LAYERS[type(layer)](layer, calls)


def _outer(layer: Any, a: list[Tensor], g: list[Tensor]) -> Outer:
    """Calls are more places: (n, T, in) and (n, d, T, out) put end to end."""
    inputs, grads = torch.cat(a, dim=1), torch.cat(g, dim=2)
    weight, bias = layer.weight.requires_grad, layer.bias is not None and layer.bias.requires_grad
    columns = [inputs] if weight else []
    if bias:
        columns.append(inputs.new_ones(*inputs.shape[:2], 1))
    shapes = [p.shape for p in (layer.weight, layer.bias) if p is not None and p.requires_grad]
    return Outer(grads, torch.cat(columns, dim=2), tuple(shapes))


def _linear(layer: nn.Linear, calls: list[_Call]) -> Factor:
    a = [x.reshape(len(x), -1, x.shape[-1]) for x, _ in calls]
    g = [grad.reshape(*grad.shape[:2], -1, grad.shape[-1]) for _, grad in calls]
    return _outer(layer, a, g)


def _unfolded(layer: Any, x: Tensor) -> Tensor:
    """Return the patches that meet the weights: (n, in-channels k_h k_w, T)."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    x = F.pad(x, layer._reversed_padding_repeated_twice, mode=mode)
    kernel, dilation, stride = layer.kernel_size, layer.dilation, layer.stride
    if x.ndim == 3:  # one dimension is two, one of them of length 1
        x, kernel, dilation, stride = x[:, :, None], (1, *kernel), (1, *dilation), (1, *stride)
    return F.unfold(x, kernel, dilation=dilation, stride=stride)


def _convolution(layer: Any, calls: list[_Call]) -> Factor:
    a = [_unfolded(layer, x) for x, _ in calls]
    g = [grad.flatten(3) for _, grad in calls]  # (n, d, out, T)
    if layer.groups == 1:
        return _outer(layer, [x.transpose(1, 2) for x in a], [x.transpose(2, 3) for x in g])
    inputs, grads = torch.cat(a, dim=2), torch.cat(g, dim=3)
    split = (layer.groups, -1)
    parts = []
    if layer.weight.requires_grad:
        product = torch.einsum(
            "nkgot,ngit->nkgoi", grads.unflatten(2, split), inputs.unflatten(1, split)
        )
        parts.append(product.reshape(*grads.shape[:2], *layer.weight.shape))
    if layer.bias is not None and layer.bias.requires_grad:
        parts.append(grads.sum(dim=3))
    return Rows(tuple(parts))


def _scaled(layer: Any, calls: list[_Call], normal: Callable[[Tensor], Tensor], rest: Any) -> Rows:
    """y = weight * normal(x) + bias, where `rest` sums a gradient over all places."""
    parts = []
    if layer.weight is not None and layer.weight.requires_grad:
        parts.append(sum(rest(g * normal(x)[:, None]) for x, g in calls))
    if layer.bias is not None and layer.bias.requires_grad:
        parts.append(sum(rest(g) for _, g in calls))
    return Rows(tuple(parts))


def _over_space(g: Tensor) -> Tensor:
    return g.flatten(3).sum(dim=3) if g.ndim > 3 else g


def _batch_norm(layer: Any, calls: list[_Call]) -> Factor:
    normal = lambda x: F.batch_norm(x, layer.running_mean, layer.running_var, eps=layer.eps)
    return _scaled(layer, calls, normal, _over_space)


def _group_norm(layer: nn.GroupNorm, calls: list[_Call]) -> Factor:
    normal = lambda x: F.group_norm(x, layer.num_groups, eps=layer.eps)
    return _scaled(layer, calls, normal, _over_space)


def _layer_norm(layer: nn.LayerNorm, calls: list[_Call]) -> Factor:
    shape = tuple(layer.normalized_shape)
    normal = lambda x: F.layer_norm(x, shape, eps=layer.eps)
    rest = lambda g: g.reshape(*g.shape[:2], -1, *shape).sum(dim=2)
    return _scaled(layer, calls, normal, rest)


def _embedding(layer: nn.Embedding, calls: list[_Call]) -> Factor:
    """Return a linear map of one-hot rows, of the entries that the batch uses."""
    ids = torch.cat([x.reshape(len(x), -1) for x, _ in calls], dim=1)
    g = torch.cat([g.reshape(*g.shape[:2], -1, g.shape[-1]) for _, g in calls], dim=2)
    used, place = torch.unique(ids, return_inverse=True)
    a = F.one_hot(place, len(used)).to(g)
    if layer.padding_idx is not None:  # that entry is never trained
        a = a * (ids != layer.padding_idx)[:, :, None]
    return Outer(g, a, (layer.weight.shape,), used)


LAYERS: dict[type, Callable[[Any, list[_Call]], Factor]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm3d: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
}
"""The layers whose structure is used; exactly these types, for a subclass may do something else."""
