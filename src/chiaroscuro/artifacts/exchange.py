"""Embeddings in the formats of other tools: pandas, parquet, faiss, TensorBoard's projector."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chiaroscuro.errors import need
from chiaroscuro.extras import bring

if TYPE_CHECKING:
    from chiaroscuro.artifacts.embeddings import Embeddings

__all__ = ["columns_of", "main_vectors", "to_faiss", "to_pandas", "to_parquet", "to_projector"]

_VECTORS = ("h", "z", "h1", "z1", "h2", "z2")
_SPRITE = 8192
"""Largest side in pixels of the image that TensorBoard's projector shows."""


def main_vectors(embeddings: Embeddings) -> np.ndarray:
    """Return h, or the first other vectors that are there."""
    there = [array for name in _VECTORS if (array := getattr(embeddings, name)) is not None]
    need(
        bool(there),
        lambda: (
            "An array of embeddings needs `h` or other vectors; received "
            f"{', '.join(embeddings.arrays()) or 'nothing'}."
        ),
    )
    return there[0]


def columns_of(embeddings: Embeddings) -> dict[str, np.ndarray]:
    """Return what is known of each row, one plain column each: ids, labels, split, texts, factors.

    `label_name` is the class's name where it has one; unlabelled rows (-1) have an empty name.
    """
    columns: dict[str, np.ndarray] = {}
    for ours, name in (("ids", "id"), ("labels", "label"), ("coarse_labels", "coarse_label")):
        if getattr(embeddings, ours) is not None:
            columns[name] = getattr(embeddings, ours)
    if embeddings.labels is not None and embeddings.class_names is not None:
        names = np.append(embeddings.class_names.astype(object), "")
        columns["label_name"] = names[np.where(embeddings.labels < 0, -1, embeddings.labels)]
    if embeddings.split is not None:
        columns["split"] = np.array(["train", "test"], dtype=object)[embeddings.split]
    if embeddings.texts is not None:
        columns["text"] = embeddings.texts.astype(object)
    if embeddings.factors is not None:
        given = embeddings.factor_names
        k = embeddings.factors.shape[1]
        called = [str(i) for i in range(k)] if given is None else [str(n) for n in given]
        columns |= {f"factor_{n}": embeddings.factors[:, i] for i, n in enumerate(called)}
    return columns


def to_pandas(embeddings: Embeddings) -> Any:
    """Return a `DataFrame`: one row per sample, a column of vectors for each of h, z, ..."""
    pandas = bring("pandas", "`Embeddings.to_pandas`", "'chiaroscuro[notebook]'")
    vectors = {n: getattr(embeddings, n) for n in _VECTORS if getattr(embeddings, n) is not None}
    return pandas.DataFrame({**columns_of(embeddings), **{n: list(v) for n, v in vectors.items()}})


def to_parquet(embeddings: Embeddings, path: str | os.PathLike) -> Path:
    """Write a parquet file that embedding viewers and `datasets` open.

    `embedding` is the main vector (h), `z` and the others keep their names, all as lists of
    float32; `image` holds thumbnails as PNG in the struct of Hugging Face.

    Args:
        embeddings: with vectors.
        path: ends in `.parquet`.
    """
    arrow = bring("pyarrow", "`Embeddings.to_parquet`", "'chiaroscuro[parquet]'")
    parquet = bring("pyarrow.parquet", "`Embeddings.to_parquet`", "'chiaroscuro[parquet]'")
    path = Path(path)
    need(
        path.suffix == ".parquet",
        lambda: f"`to_parquet` needs a name that ends in `.parquet`; received `{path.name}`.",
    )
    main = main_vectors(embeddings)
    table: dict[str, Any] = {n: arrow.array(v.tolist()) for n, v in columns_of(embeddings).items()}
    table["embedding"] = _lists(arrow, main)
    for name in _VECTORS:
        array = getattr(embeddings, name)
        if array is not None and array is not main:
            table[name] = _lists(arrow, array)
    if embeddings.thumbnails is not None:
        kind = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        cells = [{"bytes": _png(image), "path": None} for image in embeddings.thumbnails]
        table["image"] = arrow.array(cells, type=kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table(table), path)
    return path


def to_faiss(embeddings: Embeddings, metric: str = "cosine") -> Any:
    """Return an exact index of faiss over the main vectors, row i of the index for sample i.

    Args:
        embeddings: with vectors, all finite.
        metric: "cosine" (inner product of unit rows), "dot" or "l2".
    """
    faiss = bring("faiss", "`Embeddings.to_faiss`", "'chiaroscuro[faiss]'")
    need(
        metric in ("cosine", "dot", "l2"),
        lambda: f"`to_faiss(metric)` needs cosine, dot or l2; received `{metric}`.",
    )
    x = np.ascontiguousarray(main_vectors(embeddings), dtype=np.float32)
    bad = len(x) - int(np.isfinite(x).all(axis=1).sum())
    need(bad == 0, lambda: f"`to_faiss` needs finite vectors; {bad} of {len(x)} rows are not.")
    if metric == "cosine":
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    index = faiss.IndexFlatL2(x.shape[1]) if metric == "l2" else faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    return index


def to_projector(embeddings: Embeddings, folder: str | os.PathLike) -> Path:
    """Write a folder that TensorBoard's projector shows: `tensorboard --logdir FOLDER`.

    Plain files, without TensorBoard: `tensors.tsv`, `metadata.tsv`, `sprite.png` of the thumbnails
    where they fit into one image, and `projector_config.pbtxt`.

    Args:
        embeddings: with vectors.
        folder: made if need be.
    """
    folder, x = Path(folder), main_vectors(embeddings)
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / "tensors.tsv", x.reshape(len(x), -1), fmt="%.7g", delimiter="\t")
    columns = columns_of(embeddings) or {"row": np.arange(len(x))}
    lines = ["\t".join(columns)] if len(columns) > 1 else []
    for row in zip(*columns.values(), strict=True):
        lines.append("\t".join(" ".join(str(value).split()) for value in row))  # noqa: PERF401
    (folder / "metadata.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = ['  tensor_path: "tensors.tsv"', '  metadata_path: "metadata.tsv"']
    side = _sprite(embeddings, folder / "sprite.png")
    if side:
        dims = f"single_image_dim: {side} single_image_dim: {side}"
        config.append(f'  sprite {{ image_path: "sprite.png" {dims} }}')
    text = "\n".join(["embeddings {", '  tensor_name: "embeddings"', *config, "}"])
    (folder / "projector_config.pbtxt").write_text(text + "\n", encoding="utf-8")
    return folder


def _lists(arrow: Any, array: np.ndarray) -> Any:
    flat = arrow.array(np.ascontiguousarray(array, dtype=np.float32).reshape(-1))
    width = int(np.prod(array.shape[1:]))
    return arrow.FixedSizeListArray.from_arrays(flat, width).cast(arrow.list_(arrow.float32()))


def _png(image: np.ndarray) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def _sprite(embeddings: Embeddings, path: Path) -> int:
    """Write thumbnails row by row into one image; return their side, 0 if they do not fit."""
    thumbnails = embeddings.thumbnails
    if thumbnails is None:
        return 0
    from PIL import Image

    n, side = thumbnails.shape[:2]
    across = int(np.ceil(np.sqrt(n)))
    if across * side > _SPRITE:
        return 0
    sheet = np.full((across * side, across * side, 3), 255, dtype=np.uint8)
    for i, image in enumerate(thumbnails):
        top, left = (i // across) * side, (i % across) * side
        sheet[top : top + side, left : left + side] = image
    Image.fromarray(sheet).save(path)
    return side
