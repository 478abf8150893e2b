"""The history and settings of anybody's training loop, as rules about training need them."""

from __future__ import annotations

import csv
import io
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.errors import InputError, need

__all__ = ["read_history", "read_settings"]

_RECORD = {
    "step": ("step", "global_step", "iteration", "iter", "_step", "steps"),
    "epoch": ("epoch",),
    "loss": ("loss", "train_loss", "train/loss", "training_loss", "train_loss_step"),
    "lr": ("lr", "learning_rate", "train/learning_rate", "lr-adam", "lr-sgd"),
}
_SETTING = {
    "batch": (
        *("batch", "batch_size", "train_batch_size", "per_device_train_batch_size"),
        *("global_batch_size", "batchsize"),
    ),
    "epochs": ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs"),
    "optimiser.lr": ("lr", "learning_rate", "base_lr"),
    "optimiser.weight_decay": ("weight_decay", "wd"),
    "temperature": ("temperature", "tau", "temp"),
    "objective": ("objective",),
}
"""What other loops call a setting; the last part of a dotted name is compared."""


def read_history(path: Any) -> list[dict[str, Any]]:
    """Read records of a training: JSON lines, a JSON list, Hugging Face's state, or CSV.

    The usual names become `step`, `epoch`, `loss` and `lr`; others are kept.

    Args:
        path: such as `log.jsonl`, `trainer_state.json` or Lightning's `metrics.csv`.
    """
    path = Path(path)
    text = read_regular(path).decode("utf-8-sig", errors="replace")
    if path.suffix == ".csv":
        found: Any = [
            {k: _value(v) for k, v in row.items() if k and v not in (None, "")}
            for row in csv.DictReader(io.StringIO(text))
        ]
    elif path.suffix == ".json":
        found = _json(path, text)
        found = found.get("log_history", found) if isinstance(found, Mapping) else found
    else:
        lines = [(k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip()]
        found = [_json(path, line, k) for k, line in lines]
    need(
        isinstance(found, Sequence) and all(isinstance(one, Mapping) for one in found),
        lambda: f"`{path.name}` needs a list of records, one for each step or epoch.",
    )
    records = [_renamed(one) for one in found]
    names = dict.fromkeys(key for one in records[:50] for key in one)
    need(
        any("loss" in one for one in records),
        lambda: (
            f"`{path.name}` needs records with a `loss`; it has {len(records)} records with "
            f"{', '.join(f'`{key}`' for key in names) or 'no keys'}."
        ),
    )
    for at, one in enumerate(records):
        one.setdefault("step", at + 1)
    return records


def read_settings(path: Any) -> dict[str, Any]:
    """Read settings of any loop from TOML or JSON: `batch`, `epochs`, `optimiser.lr` and the like.

    Ours are returned as they are; of another's the usual names (`batch_size`, `learning_rate`,
    `temperature`) at any depth.

    Args:
        path: ends in `.toml` or `.json`.
    """
    path = Path(path)
    text = read_regular(path).decode("utf-8-sig", errors="replace")
    try:
        found = _json(path, text) if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"`{path.name}` is not TOML: {error}.") from None
    need(
        isinstance(found, Mapping),
        lambda: f"`{path.name}` needs settings by name; it holds a {type(found).__name__}.",
    )
    if isinstance(found.get("objective"), str) and isinstance(found.get("optimiser"), Mapping):
        return dict(found)
    flat = _flat(found)
    made: dict[str, Any] = {}
    for ours, usual in _SETTING.items():
        there = [v for k, v in flat.items() if k.rpartition(".")[2].lower() in usual]
        if there:
            under, _, key = ours.rpartition(".")
            (made.setdefault(under, {}) if under else made)[key] = there[0]
    need(
        bool(made),
        lambda: (
            f"`{path.name}` needs settings such as `batch_size`, `learning_rate` or `temperature`; "
            f"it has {', '.join(f'`{k}`' for k in list(flat)[:12]) or 'none'}."
        ),
    )
    return made


def _flat(found: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in found.items():
        name = f"{under}{key}"
        out |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return out


def _json(path: Path, text: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = "" if line is None else f" in line {line}"
        raise InputError(f"`{path.name}` is not JSON{where}: {error}.") from None


def _renamed(one: Mapping[str, Any]) -> dict[str, Any]:
    lower = {str(key).lower(): value for key, value in one.items()}
    found = {str(key): value for key, value in one.items()}
    for ours, usual in _RECORD.items():
        there = next((lower[name] for name in usual if name in lower), None)
        if isinstance(there, int | float) and math.isfinite(there):
            found[ours] = there
    return found


def _value(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
