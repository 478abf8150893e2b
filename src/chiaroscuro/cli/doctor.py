"""`chiaro doctor`: versions, devices, optional packages and data."""

import argparse
import os
from typing import Any

from chiaroscuro import __version__

__all__ = ["doctor", "facts"]

EXTRAS = (
    *("torchvision", "timm", "transformers", "safetensors", "scikit-learn", "matplotlib"),
    *("optuna", "ray"),
)


def doctor(call: argparse.Namespace) -> int:
    known = facts()
    if call.json:
        import json

        print(json.dumps(known, indent=2))
        return 0
    width = max(map(len, known))
    for name, fact in known.items():
        print(f"{name:<{width}}  {_line(fact)}")
    return 0


def _line(fact: Any) -> str:
    match fact:
        case None | False:
            return "no"
        case True:
            return "yes"
        case dict():
            return ", ".join(f"{name} {_line(value)}" for name, value in fact.items()) or "none"
        case list():
            return ", ".join(map(str, fact)) or "none"
    return str(fact)


def facts() -> dict[str, Any]:
    import platform

    facts: dict[str, Any] = {
        "chiaroscuro": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "cuda": None,
        "mps": None,
        "threads": None,
        "blas": None,
        "compiler": _compiler(),
        "data": _data(),
        "extras": {name: _version(name) for name in EXTRAS},
    }
    if facts["torch"]:
        import torch

        cuda = torch.cuda.is_available()
        facts["cuda"] = torch.cuda.get_device_name(0) if cuda else False
        facts["mps"] = torch.backends.mps.is_available()
        facts["threads"] = torch.get_num_threads()
        facts["blas"] = _blas(torch.__config__.show())
    return facts


def _version(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _blas(config: str) -> str | None:
    import re

    match = re.search(r"BLAS_INFO=(\w+)", config)
    return match[1] if match else None


def _compiler() -> str | None:
    import shutil

    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _data() -> dict[str, Any]:
    """Return where data are looked for, and which have a name there."""
    from chiaroscuro.data import available
    from chiaroscuro.data.places import VARIABLE, places

    folder = os.environ.get(VARIABLE)
    missing = " (not there)" if folder and not os.path.isdir(folder) else ""
    return {
        VARIABLE: f"{folder}{missing}" if folder else "not set",
        "folders": [str(place) for place in places()],
        "datasets": [one.name for one in available() if one.where],
    }
