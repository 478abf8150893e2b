"""The layers of any network in order, and a learning rate for each."""

from __future__ import annotations

from typing import Any

from torch import nn

from chiaroscuro.errors import need

__all__ = ["freeze_but_last", "layers_of", "rate_groups"]


def layers_of(encoder: nn.Module) -> list[list[nn.Parameter]]:
    """Return the parameters of a network, layer by layer, from the input to the output.

    A layer is a child that has parameters; a `Sequential` or a `ModuleList` of several is one layer
    for each of its members, as the blocks of a `ViT` and of a stage of a `ResNet` are. A wrapper of
    one child is looked into. Parameters of the network itself, such as a class token and
    positions, belong to the first layer.

    Args:
        encoder: any module.

    Example:
        >>> len(layers_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))))
        2
    """
    own = list(encoder.parameters(recurse=False))
    children = [child for child in encoder.children() if any(True for _ in child.parameters())]
    if len(children) == 1 and not own:
        return layers_of(children[0])
    layers: list[list[nn.Parameter]] = []
    for child in children:
        several = isinstance(child, nn.Sequential | nn.ModuleList) and len(child) > 1
        parts = list(child.children()) if several else [child]
        layers += [list(part.parameters()) for part in parts]
    layers = [layer for layer in layers if layer]
    if own:
        layers[:1] = [own + (layers[0] if layers else [])]
    return layers


def rate_groups(
    encoder: nn.Module, head: nn.Module, lr: float, decay: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Return the groups of an optimiser: the rate falls from the output to the input.

        lr_l = lr decay^(L - l),   l = 0, ..., L - 1 the layers;  the head has lr

    Layer-wise decay [clark2020electra, App. A; bao2022beit, Sec. 3.1]; biases and the scales of
    normalisations have no weight decay. Parameters that want no gradient are left out.

    Args:
        encoder: the network.
        head: on top of it.
        lr: of the head.
        decay: of a layer below; 1 gives all the same rate.
        weight_decay: of matrices.
    """
    layers = layers_of(encoder)
    rated = [(lr * decay ** (len(layers) - at), layer) for at, layer in enumerate(layers)]
    groups: list[dict[str, Any]] = []
    for rate, layer in [*rated, (lr, list(head.parameters()))]:
        for matrices in (True, False):
            chosen = [p for p in layer if p.requires_grad and (p.ndim > 1) == matrices]
            if chosen:
                shrink = weight_decay if matrices else 0.0
                groups.append({"params": chosen, "lr": rate, "weight_decay": shrink})
    return groups


def freeze_but_last(encoder: nn.Module, count: int) -> list[nn.Module]:
    """Freeze all but the last layers, and return the modules that have nothing left to learn.

    Args:
        encoder: the network; its parameters below want no gradient afterwards.
        count: layers that learn; 0 is all of them.
    """
    layers = layers_of(encoder)
    need(
        0 <= count <= len(layers),
        lambda: f"`layers` needs a number from 0 (all) to {len(layers)}; received {count}.",
    )
    if count == 0:
        return []
    for layer in layers[: len(layers) - count]:
        for p in layer:
            p.requires_grad_(False)
    return [
        module
        for module in encoder.modules()
        if (own := list(module.parameters())) and not any(p.requires_grad for p in own)
    ]
