"""The history and settings of any training loop, as rules about training need them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.artifacts.toml import from_toml
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
    text = _text(path)
    if path.suffix == ".csv":
        try:
            entries: Any = [
                {k: _value(v) for k, v in row.items() if k and isinstance(v, str) and v}
                for row in csv.DictReader(io.StringIO(text, newline=""))
            ]
        except csv.Error as error:
            raise InputError(f"`{path.name}` is not CSV: {error}.") from None
    elif path.suffix == ".json":
        entries = _json(path, text)
        entries = entries.get("log_history", entries) if isinstance(entries, Mapping) else entries
    else:
        lines = [(k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip()]
        entries = [_json(path, line, k) for k, line in lines]
    need(
        isinstance(entries, Sequence) and all(isinstance(one, Mapping) for one in entries),
        lambda: f"`{path.name}` needs a list of records, one for each step or epoch.",
    )
    records = [_renamed(one) for one in entries]
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
    text = _text(path)
    table = _json(path, text) if path.suffix == ".json" else from_toml(text, f"`{path.name}`")
    need(
        isinstance(table, Mapping),
        lambda: f"`{path.name}` needs settings by name; it holds a {type(table).__name__}.",
    )
    if isinstance(table.get("objective"), str) and isinstance(table.get("optimiser"), Mapping):
        return dict(table)
    try:
        flat = _flat(table)
    except RecursionError:
        raise InputError(f"`{path.name}` nests too deeply to be settings.") from None
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


def _flat(table: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{under}{key}"
        out |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return out


def _json(path: Path, text: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = "" if line is None else f" in line {line}"
        raise InputError(f"`{path.name}` is not JSON{where}: {str(error)[:200]}.") from None


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"`{path.name}` needs UTF-8: {error}.") from None


def _renamed(one: Mapping[str, Any]) -> dict[str, Any]:
    lower = {str(key).lower(): value for key, value in one.items()}
    record = {str(key): value for key, value in one.items()}
    for ours, usual in _RECORD.items():
        there = next((lower[name] for name in usual if name in lower), None)
        if _is_finite(there):
            record[ours] = there
    return record


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def _value(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
