"""What the tensors of our encoders are called in timm, torchvision and transformers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from torch import nn

from chiaroscuro.models.resnet import ResNet
from chiaroscuro.models.vit import ViT

__all__ = ["LIBRARIES", "names_in", "naming_schemes"]

LIBRARIES = ("timm", "torchvision", "transformers")

_Rules = list[tuple[str, str | Callable[[re.Match], str]]]


def _stage(match: re.Match) -> str:
    return f"encoder.stages.{int(match[1]) - 1}.layers.{match[2]}."


def _part(kind: str) -> Callable[[re.Match], str]:
    return lambda match: f"layer.{int(match[1]) - 1}.{kind}."


# each rule rewrites what the rules before it have left; three names stand for one joined tensor
_RESNET_TRANSFORMERS: _Rules = [
    (r"^conv1\.", "embedder.embedder.convolution."),
    (r"^bn1\.", "embedder.embedder.normalization."),
    (r"^layer(\d)\.(\d+)\.", _stage),
    (r"downsample\.0\.", "shortcut.convolution."),
    (r"downsample\.1\.", "shortcut.normalization."),
    (r"\bconv(\d)\.", _part("convolution")),
    (r"\bbn(\d)\.", _part("normalization")),
]
_RESNET_CHILDREN: _Rules = [  # of `nn.Sequential(*list(resnet.children())[:-1])`
    (r"^conv1\.", "0."),
    (r"^bn1\.", "1."),
    (r"^layer(\d)\.", lambda match: f"{int(match[1]) + 3}."),
]
_VIT_TORCHVISION: _Rules = [
    (r"^cls_token$", "class_token"),
    (r"^pos_embed$", "encoder.pos_embedding"),
    (r"^patch_embed\.proj\.", "conv_proj."),
    (r"^norm\.", "encoder.ln."),
    (r"^blocks\.(\d+)\.", r"encoder.layers.encoder_layer_\1."),
    (r"\bnorm(\d)\.", r"ln_\1."),
    (r"\battn\.qkv\.", "self_attention.in_proj_"),
    (r"\battn\.proj\.", "self_attention.out_proj."),
    (r"\bmlp\.fc1\.", "mlp.0."),
    (r"\bmlp\.fc2\.", "mlp.3."),
]
_VIT_TRANSFORMERS: _Rules = [  # as in its files; version 5 has other names in memory
    (r"^(cls_token)$", r"embeddings.\1"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^norm\.", "layernorm."),
    (r"^blocks\.(\d+)\.", r"encoder.layer.\1."),
    (r"\bnorm1\.", "layernorm_before."),
    (r"\bnorm2\.", "layernorm_after."),
    (r"\battn\.proj\.", "attention.output.dense."),
    (r"\bmlp\.fc1\.", "intermediate.dense."),
    (r"\bmlp\.fc2\.", "output.dense."),
]
_VIT_TRANSFORMERS_5: _Rules = [
    *_VIT_TRANSFORMERS[:4],
    (r"^blocks\.(\d+)\.", r"layers.\1."),
    *_VIT_TRANSFORMERS[5:7],
    (r"\battn\.proj\.", "attention.o_proj."),
]


def names_in(model: nn.Module, library: str) -> dict[str, tuple[str, ...]] | None:
    """Return the names that another library's files have for each tensor of one of our encoders.

    Three names are the parts of a joined tensor, one below the other. None if the library has no
    such architecture.

    Args:
        model: a `ResNet` or a `ViT`.
        library: "timm", "torchvision" or "transformers".

    Example:
        >>> names_in(ResNet(depth=9, stem="large"), "transformers")["bn1.bias"]
        ('embedder.embedder.normalization.bias',)
    """
    if not isinstance(model, ResNet | ViT):
        return None
    own = list(model.state_dict())
    if library == "timm" or (library == "torchvision" and isinstance(model, ResNet)):
        return {name: (name,) for name in own}
    if isinstance(model, ResNet):
        return _renamed(own, _RESNET_TRANSFORMERS)
    if library == "torchvision":
        return _renamed(own, _VIT_TORCHVISION)
    return _renamed(own, _VIT_TRANSFORMERS, "attention.attention.{}.", ("query", "key", "value"))


def naming_schemes(model: nn.Module) -> list[dict[str, tuple[str, ...]]]:
    """Return every way in which a file may name the tensors of this module, its own first."""
    own = list(model.state_dict())
    schemes: list[dict[str, tuple[str, ...]]] = [{name: (name,) for name in own}]
    if not isinstance(model, ResNet | ViT):
        inner = own
        while inner and all(name.startswith("module.") for name in inner):  # inside an `Adapter`
            inner = [name.removeprefix("module.") for name in inner]
            schemes.append({name: (theirs,) for name, theirs in zip(own, inner, strict=True)})
        return schemes
    schemes += [scheme for library in LIBRARIES if (scheme := names_in(model, library))]
    if isinstance(model, ResNet):
        schemes.append(_renamed(own, _RESNET_CHILDREN))
    else:
        parts = ("q_proj", "k_proj", "v_proj")
        schemes.append(_renamed(own, _VIT_TRANSFORMERS_5, "attention.{}.", parts))
    return [scheme for at, scheme in enumerate(schemes) if scheme not in schemes[:at]]


def _renamed(
    own: Iterable[str], rules: _Rules, joined: str = "", parts: tuple[str, ...] = ()
) -> dict[str, tuple[str, ...]]:
    names = {}
    for name in own:
        theirs = name
        for pattern, replacement in rules:
            theirs = re.sub(pattern, replacement, theirs)
        if parts and "attn.qkv." in theirs:
            names[name] = tuple(theirs.replace("attn.qkv.", joined.format(part)) for part in parts)
        else:
            names[name] = (theirs,)
    return names
