"""`embed_shards`: embeddings of data of any size, written in shards as they come.

Memory holds one shard at most. Shards are whole batches of `embed`, so that they hold its numbers
bit by bit on a CPU; each appears under its name when it is whole, so that what was interrupted goes
on where it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from chiaroscuro.artifacts.file_kinds import SHARDS
from chiaroscuro.artifacts.files import read_json
from chiaroscuro.artifacts.pieces import release
from chiaroscuro.data import Dataset, open_data
from chiaroscuro.engine.distributed import (
    is_first,
    on_every_rank,
    opened_by_ranks,
    rank,
    world_size,
)
from chiaroscuro.engine.embedding import BATCH, Passing, embedder, passing_of
from chiaroscuro.engine.opening import OpenRun, open_run
from chiaroscuro.errors import InputError, need
from chiaroscuro.extras import bring

__all__ = ["embed_shards"]

ROWS = 65_536
"""Of a shard: 32 MB at 128 dimensions."""

FORMAT = 1
_KNOWN = ("labels", "coarse_labels", "factors", "split")
Columns = dict[str, np.ndarray]


def embed_shards(
    run: Any,
    data: Any,
    out: str | os.PathLike,
    *,
    rows: int = ROWS,
    kind: str = "npz",
    engine: str = "here",
    side: int = 0,
    passing: Passing | None = None,
    progress: TextIO | None = None,
) -> Path:
    """Embed data by a run into a folder of shards, and return the folder.

    A shard holds `h`, `z` where there is a projector, `ids`, and the labels, factors and split that
    the data have. `part-000003.npz` is rows 3 * rows to 4 * rows, as `Embeddings.load` reads them;
    a parquet shard has the same columns. `diagnose` takes the folder once all are there. Under
    `torchrun` each rank writes every world-th shard; shards that are there already are kept.

    Args:
        run: a run, its folder, or an `OpenRun`.
        data: anything that `open_data` takes; None is what the run was trained on.
        out: a folder: new, empty, or begun by the same call.
        rows: of a shard, a multiple of 256.
        kind: "npz", or "parquet" (`chiaroscuro[parquet]`).
        engine: "here", or "ray": the processes of a Ray cluster share the shards
            (`chiaroscuro[ray]`, which writes parquet).
        side: 1 for the second network of a pair.
        passing: the device, precision and workers.
        progress: where to say how far it is.
    """
    need(
        rows >= BATCH and rows % BATCH == 0,
        lambda: f"`embed_shards(rows)` needs a multiple of {BATCH}; received {rows}.",
    )
    need(
        kind in _WRITERS,
        lambda: f"`embed_shards(kind)` needs `npz` or `parquet`; received `{kind}`.",
    )
    need(
        engine in ("here", "ray"),
        lambda: f"`embed_shards(engine)` needs `here` or `ray`; received `{engine}`.",
    )
    if kind == "parquet":
        bring("pyarrow.parquet", "Writing parquet", "parquet")
    opened = on_every_rank(lambda: open_run(run))
    table = opened_by_ranks(lambda: _table(opened, data))
    need(len(table) > 0, lambda: f"`embed` needs at least 1 sample; `{table.name}` has 0.")
    folder = Path(out)
    about = _about(opened, data, len(table), rows, kind, side)
    on_every_rank(lambda: _begin(folder, about) if is_first() else None)
    count = -(-len(table) // rows)
    names = [f"part-{number:06d}.{kind}" for number in range(count)]
    left = [k for k, name in enumerate(names) if not (folder / name).is_file()]
    say = _speaker(progress, count)
    if engine == "ray":
        _by_ray(opened, data, folder, names, left, rows, side, passing, say)
    else:
        mine = [k for k in left if k % world_size() == rank()]
        passing = passing_of(opened, passing)
        with embedder(opened.networks, table, side, opened.views, passing) as embedded:
            for k in mine:
                columns = _shard(embedded, table, k, rows)
                _written(_WRITERS[kind], columns, folder / names[k])
                for column in table.columns.values():
                    release(column)
                say(k)
    on_every_rank(lambda: None)
    return folder


def _table(run: OpenRun, data: Any) -> Dataset:
    return run.data if data is None else run.as_trained(open_data(data))


def _about(run: OpenRun, data: Any, n: int, rows: int, kind: str, side: int) -> dict[str, Any]:
    """Return what a folder of shards is of."""
    return {
        "format": FORMAT,
        "run": run.name,
        "weights": run.weights,
        "data": run.settings.data.source if data is None else str(data),
        "n": n,
        "rows": rows,
        "kind": kind,
        "side": side,
    }


def _begin(folder: Path, about: dict[str, Any]) -> None:
    """Make the folder, or find that it was begun by the same call."""
    manifest = folder / SHARDS
    if manifest.is_file():
        then = read_json(manifest)
        need(isinstance(then, dict), lambda: f"`{manifest}` is damaged: it is no object.")
        apart = [k for k in about if then.get(k) != about[k]]
        need(
            not apart,
            lambda: (
                f"`{folder}` holds other shards: its `{apart[0]}` is {then.get(apart[0])!r}, and "
                f"{about[apart[0]]!r} is asked for. Take another folder."
            ),
        )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"`{folder}` needs to be a new or an empty folder for the shards.")
    folder.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _shard(embedded: Callable[[range], Any], data: Dataset, number: int, rows: int) -> Columns:
    """Return the columns of one shard."""
    start, stop = number * rows, min((number + 1) * rows, len(data))
    parts = list(embedded(range(start // BATCH, -(-stop // BATCH))))
    columns = {"h": torch.cat([h for h, _ in parts]).numpy()}
    if parts[0][1] is not None:
        columns["z"] = torch.cat([z for _, z in parts]).numpy()
    some = data.take(np.arange(start, stop))
    columns |= {name: some.column(name) for name in _KNOWN if name in some.columns}
    ids = some.ids
    columns["ids"] = ids if ids.dtype.kind in "iuU" else ids.astype(str)
    if "labels" in columns and data.class_names:
        columns["class_names"] = np.array(data.class_names)
    if "factors" in columns and data.factor_names:
        columns["factor_names"] = np.array(data.factor_names)
    return columns


def _written(write: Callable[[Columns, Path], None], columns: Columns, path: Path) -> None:
    """Write a shard beside its place, and move it there whole."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(columns, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _write_npz(columns: Columns, path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **columns)


def _write_parquet(columns: Columns, path: Path) -> None:
    parquet = bring("pyarrow.parquet", "Writing parquet", "parquet")
    parquet.write_table(_arrow(columns), path)


def _arrow(columns: Columns) -> Any:
    """Columns as a table of arrow: a matrix is a column of lists of one length.

    Names of classes and factors are in columns, as `Embeddings.to_parquet` writes them.
    """
    arrow = bring("pyarrow", "Writing parquet", "parquet")
    rows = dict(columns)
    if "class_names" in rows:
        names = np.append(rows.pop("class_names").astype(object), "")
        rows["label_name"] = names[np.maximum(rows["labels"], -1)]
    if "factor_names" in rows:
        names, factors = rows.pop("factor_names"), rows.pop("factors")
        rows |= {f"factor_{name}": factors[:, k] for k, name in enumerate(names)}
    made = {}
    for name, values in rows.items():
        flat = arrow.array(np.ascontiguousarray(values).reshape(-1))
        wide = values.ndim > 1
        made[name] = arrow.FixedSizeListArray.from_arrays(flat, values.shape[1]) if wide else flat
    return arrow.table(made)


_WRITERS = {"npz": _write_npz, "parquet": _write_parquet}


def _speaker(progress: TextIO | None, count: int) -> Callable[[int], None]:
    def say(number: int) -> None:
        if progress is not None:
            print(f"shard {number + 1} of {count} is written", file=progress, flush=True)

    return say


# ---- on a cluster ----


def _by_ray(
    run: OpenRun,
    data: Any,
    folder: Path,
    names: Sequence[str],
    left: Sequence[int],
    rows: int,
    side: int,
    passing: Passing | None,
    say: Callable[[int], None],
) -> None:
    """Let the processes of Ray Data write the shards that are left, each with networks of its own.

    The folder, the run and the data have to be where all of them see them.
    """
    ray = bring("ray", "Embedding on a cluster", "ray")
    of = run.run
    if of is None or not (data is None or isinstance(data, str | os.PathLike)):
        raise InputError(
            "`embed_shards(engine='ray')` needs a run folder, and data by name or path: other "
            "processes open both again."
        )
    if not left:
        return
    begun = not ray.is_initialized()
    if begun:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        most = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1))
        call = {
            "run": str(Path(of.folder).absolute()),
            "data": None if data is None else str(data),
            "folder": str(folder.absolute()),
            "rows": rows,
            "side": side,
            "passing": passing_of(run, passing),
        }
        shards = ray.data.from_items([{"shard": k, "name": names[k]} for k in left])
        done = shards.repartition(len(left)).map(
            _RayShards,
            fn_constructor_kwargs=call,
            num_gpus=gpus,
            concurrency=(1, max(1, min(most, len(left)))),
        )
        for row in done.iter_rows():
            say(int(row["shard"]))
    finally:
        if begun:
            ray.shutdown()


class _RayShards:
    """A process of the cluster: opens the run and the data once, and writes shards."""

    def __init__(
        self, run: str, data: str | None, folder: str, rows: int, side: int, passing: Passing
    ) -> None:
        self.run = open_run(run)
        self.data = _table(self.run, data)
        self.folder, self.rows, self.side, self.passing = Path(folder), rows, side, passing

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        views = self.run.views
        with embedder(self.run.networks, self.data, self.side, views, self.passing) as embedded:
            columns = _shard(embedded, self.data, int(row["shard"]), self.rows)
        _written(_write_parquet, columns, self.folder / row["name"])
        return {"shard": row["shard"], "rows": len(columns["h"])}
