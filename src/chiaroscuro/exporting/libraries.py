"""Exports that timm, torchvision and transformers load with every key matched."""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chiaroscuro.errors import InputError, need
from chiaroscuro.exporting.files import Files, Preprocessing, renamed
from chiaroscuro.models import Adapter, Model, ResNet, ViT
from chiaroscuro.models.adapter import without_reports
from chiaroscuro.models.resnet import BLOCKS
from chiaroscuro.spec import parse

__all__ = ["for_timm", "for_torchvision", "for_transformers"]


def for_timm(encoder: Model, prepare: Preprocessing) -> Files:
    """Return files that `timm.create_model('local-dir:...', pretrained=True)` loads.

    Args:
        encoder: a `ResNet(stem="large")` of width 1, a `ViT`, or a network of `from_timm`.
        prepare: of its images.
    """
    if isinstance(encoder, ResNet):
        _plain_resnet(encoder, "timm")
        name = f"resnet{encoder.depth if encoder.depth != 9 else 18}"
        given: dict[str, Any] = {} if encoder.depth != 9 else {"layers": list(BLOCKS[9])}
        pool, tensors = "avg", renamed(encoder, "timm")
    elif isinstance(encoder, ViT):
        name, tensors = "vit_tiny_patch16_224", renamed(encoder, "timm")
        given = {
            "img_size": encoder.size,
            "patch_size": encoder.patch,
            "embed_dim": encoder.d,
            "depth": encoder.depth,
            "num_heads": encoder.heads,
        }
        pool = "token" if encoder.pool == "cls" else "avg"
        if encoder.pool == "mean":
            given |= {"class_token": False, "fc_norm": False}
    else:
        adapter, arguments = _origin(encoder, "timm")
        name, tensors = arguments["name"], dict(adapter.module.state_dict())
        # of transformers, whose class has another default than the architecture
        size = getattr(getattr(adapter.module, "patch_embed", None), "img_size", None)
        given = {} if size is None else {"img_size": list(size)}
        pool = getattr(adapter.module, "global_pool", "avg")
        pool = pool if isinstance(pool, str) else getattr(pool, "pool_type", "avg")
    config = {
        "architecture": name,
        "num_classes": 0,
        "num_features": encoder.d,
        "global_pool": pool,
        "model_args": {**given, "in_chans": prepare.channels, "global_pool": pool},
        "pretrained_cfg": {
            "custom_load": False,
            "input_size": [prepare.channels, prepare.size, prepare.size],
            "fixed_input_size": "img_size" in given,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",  # both sides to the size, as our views do
            "mean": list(prepare.mean),
            "std": list(prepare.std),
            "num_classes": 0,
            "pool_size": None,
            "first_conv": None,
            "classifier": None,
        },
    }
    usage = 'import timm\n\nmodel = timm.create_model("local-dir:DIR", pretrained=True).eval()'
    files = Files(tensors, {"config.json": config}, usage)
    if isinstance(encoder, Adapter) and not _timm_loads(files):
        files = dataclasses.replace(files, usage=_by_names(arguments, prepare))
    return files


def _timm_loads(files: Files) -> bool:
    """Return whether timm reads the same tensors: some of its networks rename those of files that
    have no head.
    """
    import timm

    with tempfile.TemporaryDirectory() as folder:
        files.write(Path(folder))
        try:
            loaded = timm.create_model(f"local-dir:{folder}", pretrained=True).state_dict()
        except (RuntimeError, TypeError, KeyError, ValueError):
            return False
    names = files.tensors.keys()
    return loaded.keys() == names and all(torch.equal(loaded[k], files.tensors[k]) for k in names)


def _by_names(arguments: dict[str, Any], prepare: Preprocessing) -> str:
    """Return the lines that load the tensors by their names, past timm's own reader."""
    size = arguments.get("size")
    given = f", in_chans={prepare.channels}" + ("" if size is None else f", img_size={size}")
    return (
        "import timm\nfrom safetensors.torch import load_file\n\n"
        f'model = timm.create_model("{arguments["name"]}"{given})\n'
        'model.reset_classifier(0)\nmodel.load_state_dict(load_file("DIR/model.safetensors"), '
        "strict=True)\nmodel.eval()"
    )


def for_torchvision(encoder: Model, prepare: Preprocessing) -> Files:
    """Return files that a model of torchvision without its head loads with `strict=True`.

    Args:
        encoder: a `ResNet(stem="large")` of width 1 and 3 channels, a `ViT(pool="cls")` of 3
            channels, or a network of `from_torchvision`.
        prepare: of its images.
    """
    need(
        prepare.channels == 3,
        lambda: (
            f"`chiaro export --to torchvision` needs a network of 3 channels, as all of "
            f"torchvision are; received {prepare.channels}. `--to timm` takes others."
        ),
    )
    head = "heads" if isinstance(encoder, ViT) else "fc"
    if isinstance(encoder, ResNet):
        _plain_resnet(encoder, "torchvision")
        tensors = renamed(encoder, "torchvision")
        block = "Bottleneck" if encoder.depth == 50 else "BasicBlock"
        build = f"models.ResNet(models.resnet.{block}, {list(BLOCKS[encoder.depth])})"
    elif isinstance(encoder, ViT):
        _with_class_token(encoder, "torchvision")
        tensors = renamed(encoder, "torchvision")
        build = (
            f"models.VisionTransformer(image_size={encoder.size}, patch_size={encoder.patch}, "
            f"num_layers={encoder.depth}, num_heads={encoder.heads}, hidden_dim={encoder.d}, "
            f"mlp_dim={4 * encoder.d})"
        )
    else:
        adapter, arguments = _origin(encoder, "torchvision")
        tensors = dict(adapter.module.state_dict())
        heads = ("fc", "classifier", "heads", "head")
        head = next(name for name in heads if hasattr(adapter.module, name))
        build = f'models.get_model("{arguments["name"]}", weights=None)'
    config = {
        "library": "torchvision",
        "build": build,
        "without": head,
        "d": encoder.d,
        "preprocessing": prepare.as_dict(),
    }
    usage = (
        "import torch\nfrom safetensors.torch import load_file\nfrom torchvision import models\n\n"
        f"model = {build}\nmodel.{head} = torch.nn.Identity()\n"
        'model.load_state_dict(load_file("DIR/model.safetensors"), strict=True)\nmodel.eval()'
    )
    return Files(tensors, {"config.json": config}, usage)


def for_transformers(encoder: Model, prepare: Preprocessing) -> Files:
    """Return files that `AutoModel.from_pretrained` loads, with every key matched.

    Args:
        encoder: a `ResNet(stem="large")`, a `ViT(pool="cls")`, or a network of
            `from_transformers`.
        prepare: of its images.
    """
    if isinstance(encoder, ResNet):
        _usual_stem(encoder, "transformers")
        bottleneck = encoder.depth == 50
        planes = encoder.conv1.out_channels
        config: dict[str, Any] = {
            "architectures": ["ResNetModel"],
            "model_type": "resnet",
            "num_channels": encoder.channels,
            "embedding_size": planes,
            "hidden_sizes": [planes * 2**stage * (4 if bottleneck else 1) for stage in range(4)],
            "depths": list(BLOCKS[encoder.depth]),
            "layer_type": "bottleneck" if bottleneck else "basic",
            "hidden_act": "relu",
            "downsample_in_first_stage": False,
        }
        tensors, out = renamed(encoder, "transformers"), "pooler_output.flatten(1)"
        options = ""
    elif isinstance(encoder, ViT):
        _with_class_token(encoder, "transformers")
        config = {
            "architectures": ["ViTModel"],
            "model_type": "vit",
            "num_channels": encoder.channels,
            "hidden_size": encoder.d,
            "num_hidden_layers": encoder.depth,
            "num_attention_heads": encoder.heads,
            "intermediate_size": 4 * encoder.d,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "layer_norm_eps": 1e-6,
            "image_size": encoder.size,
            "patch_size": encoder.patch,
            "qkv_bias": True,
        }
        tensors, out = renamed(encoder, "transformers"), "last_hidden_state[:, 0]"
        options = ", add_pooling_layer=False"
    else:
        return _transformers_original(encoder, prepare)
    usage = (
        "from transformers import AutoImageProcessor, AutoModel\n\n"
        'prepare = AutoImageProcessor.from_pretrained("DIR")\n'
        f'model = AutoModel.from_pretrained("DIR"{options})\n'
        f'h = model(**prepare(images, return_tensors="pt")).{out}'
    )
    documents = {"config.json": config, "preprocessor_config.json": _processor(prepare)}
    return Files(tensors, documents, usage)


def _transformers_original(encoder: Model, prepare: Preprocessing) -> Files:
    adapter, _ = _origin(encoder, "transformers")
    inner: Any = adapter.module.module
    config = inner.config.to_dict() | {"architectures": [type(inner).__name__]}
    documents = {"config.json": config}
    if prepare.size is not None:
        documents["preprocessor_config.json"] = _processor(prepare)
    # the pooler that some architectures bring was never trained
    pooler = "add_pooling_layer" in inspect.signature(type(inner).__init__).parameters
    first, batch = "AutoModel", "inputs"
    lines = [f'model = AutoModel.from_pretrained("DIR"{", add_pooling_layer=False" * pooler})']
    if prepare.size is not None:
        first, batch = "AutoImageProcessor, AutoModel", 'prepare(images, return_tensors="pt")'
        lines.insert(0, 'prepare = AutoImageProcessor.from_pretrained("DIR")')
    more = "".join(f", {k}={v}" for k, v in getattr(adapter.module, "more", {}).items())
    lines.append(f"states = model(**{batch}{more}).last_hidden_state")
    if prepare.size is not None and not _gives_tokens(adapter):
        lines.append("h = states.mean((2, 3))")
    elif adapter.module.pool == "cls":
        lines.append("h = states[:, 0]")
    elif prepare.size is not None:
        lines.append("h = states.mean(1)")
    else:
        lines.append('mask = inputs["attention_mask"][:, :, None]')
        lines.append("h = (states * mask).sum(1) / mask.sum(1)")
    usage = "\n".join([f"from transformers import {first}", "", *lines])
    return Files(_saved_names(inner), documents, usage)


@torch.no_grad()
def _gives_tokens(adapter: Adapter) -> bool:
    """Return whether an image becomes a row of tokens, not a map."""
    inner, more = adapter.module.module, adapter.module.more
    return inner(pixel_values=adapter.example(1), **more).last_hidden_state.ndim == 3  # type: ignore[operator, arg-type]


def _saved_names(module: Any) -> dict[str, Tensor]:
    """Return the weights as transformers itself would write them."""
    import transformers
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder, without_reports(transformers):
        module.save_pretrained(folder)
        return load_file(f"{folder}/model.safetensors")


def _processor(prepare: Preprocessing) -> dict[str, Any]:
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": prepare.size, "width": prepare.size},
        "resample": 2,  # bilinear
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(prepare.mean),
        "image_std": list(prepare.std),
    }


# ---- what the others do not have ----


def _usual_stem(encoder: ResNet, library: str) -> None:
    need(
        encoder.stem == "large" and encoder.stages == 1,
        lambda: (
            f"`chiaro export --to {library}` needs `ResNet(stem='large', stages=1)`, the network "
            f"that {library} has; received `stem={encoder.stem!r}, stages={encoder.stages}`. "
            "`--to torch` and `--to onnx` take any."
        ),
    )


def _plain_resnet(encoder: ResNet, library: str) -> None:
    _usual_stem(encoder, library)
    need(
        encoder.width == 1.0,
        lambda: (
            f"`chiaro export --to {library}` needs `ResNet(width=1.0)`; received "
            f"`width={encoder.width}`. `--to transformers` takes other widths."
        ),
    )


def _with_class_token(encoder: ViT, library: str) -> None:
    need(
        encoder.pool == "cls",
        lambda: (
            f"`chiaro export --to {library}` needs `ViT(pool='cls')`: its transformer has a class "
            f"token; received `pool={encoder.pool!r}`. `--to timm` takes both."
        ),
    )


def _origin(encoder: Model, library: str) -> tuple[Adapter, dict[str, Any]]:
    """Return the adapter and the arguments of the call that made it."""
    call = f"from_{library}"
    if not (isinstance(encoder, Adapter) and f"{call}(" in (encoder.origin or "")):
        raise InputError(
            f"`chiaro export --to {library}` needs an architecture of {library}: a `ResNet`, a "
            f"`ViT` or `{call}(...)`; received `{encoder!r}`. `--to torch` and `--to onnx` take "
            "any."
        )
    inner = lambda model, *_, **__: model
    return encoder, parse(str(encoder.origin), {call: dict, "from_weights": inner})
