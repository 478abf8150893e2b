"""The network as a graph for other runtimes: ONNX and `torch.export`, with any batch size."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.models import Model

__all__ = ["TOLERANCE", "as_program", "to_onnx", "to_program"]

TOLERANCE = 1e-5
"""Largest difference from torch, relative to the largest number of the output."""


def as_program(encoder: Model) -> torch.export.ExportedProgram:
    """Trace a copy of an encoder in evaluation mode for a batch of any size.

    Args:
        encoder: left as it is.
    """
    traced = copy.deepcopy(encoder).eval()
    with torch.no_grad():
        for tensor in (*traced.parameters(), *traced.buffers()):
            # a file holds whole tensors in the usual order, not parts of a larger one
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
        x, size = _varied(traced.example(2)), torch.export.Dim("n", min=1)
        return torch.export.export(traced, (x,), dynamic_shapes=({0: size},))


def to_program(encoder: Model, path: Path) -> float:
    """Write `model.pt2` for `torch.export.load`; return its largest relative difference.

    Args:
        encoder: any encoder.
        path: of the file.
    """
    torch.export.save(as_program(encoder), path)
    loaded: Any = torch.export.load(path).module()
    return _compared(encoder, lambda x: loaded(x), "The exported program")


def to_onnx(encoder: Model, path: Path) -> float:
    """Write an ONNX file and compare it with torch; return the largest relative difference.

    Needs `pip install 'chiaroscuro[onnx]'`. The input is called `x` and the output `h`.

    Args:
        encoder: any encoder.
        path: of the file.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise ChiaroError(
                f"Exporting to ONNX needs `{package}`, which is not installed here: "
                "`pip install 'chiaroscuro[onnx]'`."
            )
    import onnxruntime

    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()):  # the exporter reports each of its steps
        program = torch.onnx.export(
            as_program(encoder), dynamo=True, input_names=["x"], output_names=["h"], verbose=False
        )
    need(program is not None, "`torch.onnx.export` made no program.")
    program.save(str(path), external_data=False)  # type: ignore[union-attr]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(x: Tensor) -> Tensor:
        (h,) = session.run(None, {"x": x.numpy()})
        return torch.from_numpy(np.asarray(h))

    return _compared(encoder, run, "The ONNX file")


def _compared(encoder: Model, other: Any, what: str) -> float:
    """The largest relative difference over batches of 1, 2 and 5; refused above the tolerance."""
    worst, training = 0.0, encoder.training
    encoder.eval()
    try:
        for n in (1, 2, 5):
            x = _varied(encoder.example(n))
            with torch.no_grad():
                h, theirs = encoder(x), other(x)
            scale = float(h.abs().max().clamp(min=1e-12))
            worst = max(worst, float((h - theirs).abs().max()) / scale)
    finally:
        encoder.train(training)
    if not worst <= TOLERANCE:
        raise ChiaroError(
            f"{what} differs from the network by {worst:.1e} of the largest output; at most "
            f"{TOLERANCE:.0e} is accepted."
        )
    return worst


def _varied(x: Tensor) -> Tensor:
    """The samples of an example, no longer all alike."""
    if not x.is_floating_point():
        return x
    generator = torch.Generator().manual_seed(0)
    return torch.rand(x.shape, generator=generator)
