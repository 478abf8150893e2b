"""The network as a graph for other runtimes: ONNX and `torch.export`, with any batch size."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.models import Adapter, Model

__all__ = ["TOLERANCE", "as_program", "to_onnx", "to_program"]

TOLERANCE = 1e-5
"""Largest difference from torch, relative to the largest number of the output."""
ROUNDINGS = 4
"""Or so many times the difference of single from double precision, where that is more."""


class _OneInput(nn.Module):
    """A network of others whose `forward` takes any arguments, with a single one."""

    def __init__(self, encoder: Model):
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


def as_program(encoder: Model, size: int | None = None) -> torch.export.ExportedProgram:
    """Trace a copy of an encoder in evaluation mode for a batch of any size, and texts of any
    length that it takes.

    Args:
        encoder: left as it is.
        size: side of its images in pixels; None is that of `encoder.example()`.
    """
    traced = copy.deepcopy(encoder).eval()
    x = _samples(traced, 2, size)
    shape: dict[int, Any] = {0: torch.export.Dim("n", min=1)}
    if _is_tokens(x):
        shape[1] = torch.export.Dim.DYNAMIC
    with torch.no_grad():
        for tensor in (*traced.parameters(), *traced.buffers()):
            # a file holds whole tensors in the usual order, not parts of a larger one
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
        module = _OneInput(traced) if isinstance(traced, Adapter) else traced
        try:
            return torch.export.export(module, (x,), dynamic_shapes=(shape,))
        except (RuntimeError, ValueError) as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), "no reason")
            raise ChiaroError(
                f"`torch.export` cannot trace `{encoder!r}` with a batch of any size: {reason}"
            ) from error


def to_program(encoder: Model, path: Path, size: int | None = None) -> float:
    """Write `model.pt2` for `torch.export.load`; return its largest relative difference.

    Args:
        encoder: any encoder.
        path: path of the file.
        size: size of its images, as for `as_program`.
    """
    torch.export.save(as_program(encoder, size), path)
    loaded: Any = torch.export.load(path).module()
    return _compared(encoder, lambda x: loaded(x), "The exported program", size)


def to_onnx(encoder: Model, path: Path, size: int | None = None) -> float:
    """Write an ONNX file and compare it with torch; return the largest relative difference.

    Needs `pip install 'chiaroscuro[onnx]'`. The input is called `x`, the output `h`, and the sizes
    that vary `n` and `tokens`.

    Args:
        encoder: any encoder.
        path: path of the file.
        size: size of its images, as for `as_program`.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise ChiaroError(
                f"Exporting to ONNX needs `{package}`, which is not installed here: "
                "`pip install 'chiaroscuro[onnx]'`."
            )
    import onnxruntime

    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        # the exporter reports each of its steps, and what its own libraries deprecate
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.onnx.export(
            as_program(encoder, size),
            dynamo=True,
            input_names=["x"],
            output_names=["h"],
            dynamic_shapes=({0: "n"} | ({1: "tokens"} if _is_tokens(encoder.example(1)) else {}),),
            verbose=False,
        )
    need(program is not None, "`torch.onnx.export` made no program.")
    program.save(str(path), external_data=False)  # type: ignore[union-attr]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(x: Tensor) -> Tensor:
        (h,) = session.run(None, {"x": x.numpy()})
        return torch.from_numpy(np.asarray(h))

    return _compared(encoder, run, "The ONNX file", size)


def _compared(encoder: Model, other: Any, what: str, size: int | None) -> float:
    """Return the largest relative difference over batches of 1, 2 and 5.

    Refused above the tolerance, unless torch's own rounding makes a difference of that size: some
    networks amplify it.
    """
    worst, training = 0.0, encoder.training
    encoder.eval()
    batches = [_samples(encoder, n, size) for n in (1, 2, 5)]
    if _is_tokens(batches[0]):  # shorter than traced
        batches[0] = batches[0][:, : batches[0].shape[1] // 2 + 1]
    try:
        worst = max(_difference(encoder, other, x) for x in batches)
        if not worst <= TOLERANCE:
            exact = copy.deepcopy(encoder).double()
            double = lambda x: exact(x.double() if x.is_floating_point() else x)
            rounding = max(_difference(encoder, double, x) for x in batches)
            if not worst <= ROUNDINGS * rounding:
                raise ChiaroError(
                    f"{what} differs from the network by {worst:.1e} of the largest output; at "
                    f"most {max(TOLERANCE, ROUNDINGS * rounding):.0e} is accepted."
                )
    finally:
        encoder.train(training)
    return worst


@torch.no_grad()
def _difference(encoder: Model, other: Any, x: Tensor) -> float:
    """Return the largest difference of two networks, relative to the largest output."""
    h = encoder(x)
    return float((h - other(x)).abs().max() / h.abs().max().clamp(min=1e-12))


def _samples(encoder: Model, n: int, size: int | None) -> Tensor:
    """Samples of the shape that the encoder is given, no two alike where they are numbers."""
    x, generator = encoder.example(n), torch.Generator().manual_seed(0)
    vocabulary = getattr(encoder, "n_tokens", 0) or getattr(encoder, "own_vocabulary", 0)
    if _is_tokens(x) and vocabulary:
        drawn = torch.randint(vocabulary, x.shape, generator=generator)
        drawn[:, 0] = x[:, 0]  # no row is all padding
        return drawn
    if not x.is_floating_point():
        return x
    shape = (*x.shape[:2], size, size) if size is not None and x.ndim == 4 else x.shape
    return torch.rand(shape, generator=generator)


def _is_tokens(x: Tensor) -> bool:
    return x.ndim == 2 and not x.is_floating_point()
