"""Embeddings in pandas, parquet, faiss and TensorBoard's projector, read back by each of them."""

import io

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.artifacts import Embeddings
from chiaroscuro.errors import ChiaroError, InputError

rng = np.random.default_rng(0)


@pytest.fixture
def embeddings():
    return Embeddings(
        h=rng.normal(size=(6, 4)).astype(np.float32),
        z=rng.normal(size=(6, 2)),
        labels=[0, 1, 1, 0, -1, 1],
        class_names=["cat", "dog"],
        split=[0, 0, 0, 0, 1, 1],
        ids=[f"i{k}" for k in range(6)],
        texts=["a\tb", "c\nd", "e", "f", "g", "h"],
        factors=rng.normal(size=(6, 2)),
        factor_names=["x", "y"],
        thumbnails=rng.integers(0, 256, size=(6, 5, 5, 3), dtype=np.uint8),
    )


def test_numpy_sees_h(embeddings):
    assert np.array_equal(np.asarray(embeddings), embeddings.h)
    assert np.asarray(embeddings, dtype=np.float64).dtype == np.float64
    assert np.array_equal(np.asarray(Embeddings(z=np.eye(3))), np.eye(3))
    with pytest.raises(InputError, match="needs `h` or other vectors; received labels"):
        np.asarray(Embeddings(labels=[0, 1]))


def test_the_projector_reads_plain_files(embeddings, tmp_path):
    folder = embeddings.to_projector(tmp_path / "p")
    lines = (folder / "metadata.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:3] == ["id", "label", "label_name"]
    assert len(lines) == 1 + 6
    assert {line.count("\t") for line in lines} == {lines[0].count("\t")}
    vectors = np.loadtxt(folder / "tensors.tsv", delimiter="\t")
    np.testing.assert_allclose(vectors, embeddings.h, rtol=1e-6)
    with Image.open(folder / "sprite.png") as sprite:
        pixels = np.asarray(sprite)
    assert pixels.shape == (15, 15, 3)
    assert np.array_equal(pixels[5:10, :5], embeddings.thumbnails[3])
    alone = Embeddings(h=np.eye(2), labels=[0, 1]).to_projector(tmp_path / "q")
    assert (alone / "metadata.tsv").read_text() == "0\n1\n"
    assert not (alone / "sprite.png").exists()


@pytest.mark.extra("tensorboard")
def test_tensorboard_reads_the_configuration(embeddings, tmp_path):
    from google.protobuf import text_format
    from tensorboard.plugins.projector import ProjectorConfig
    from tensorboard.plugins.projector.projector_plugin import _read_tensor_tsv_file

    folder = embeddings.to_projector(tmp_path / "p")
    config = text_format.Parse((folder / "projector_config.pbtxt").read_text(), ProjectorConfig())
    (one,) = config.embeddings
    assert list(one.sprite.single_image_dim) == [5, 5]
    read = _read_tensor_tsv_file(str(folder / one.tensor_path))
    np.testing.assert_allclose(read, embeddings.h, rtol=1e-6)


@pytest.mark.extra("notebook")
def test_pandas_has_a_row_for_each_sample(embeddings):
    frame = embeddings.to_pandas()
    assert list(frame.columns[:5]) == ["id", "label", "label_name", "split", "text"]
    assert frame["label_name"].tolist() == ["cat", "dog", "dog", "cat", "", "dog"]
    assert frame["split"].tolist() == ["train"] * 4 + ["test"] * 2
    assert np.array_equal(np.stack(frame["h"]), embeddings.h)
    assert frame["factor_y"].tolist() == embeddings.factors[:, 1].tolist()


@pytest.mark.extra("parquet")
def test_parquet_comes_back(embeddings, tmp_path):
    import pyarrow.parquet as pq

    from chiaroscuro.data import read_parquet

    table = pq.read_table(embeddings.to_parquet(tmp_path / "a" / "e.parquet"))
    assert np.array_equal(np.array(table["embedding"].to_pylist(), dtype=np.float32), embeddings.h)
    np.testing.assert_allclose(np.array(table["z"].to_pylist()), embeddings.z, rtol=1e-6)
    first = Image.open(io.BytesIO(table["image"][0].as_py()["bytes"]))
    assert np.array_equal(np.asarray(first), embeddings.thumbnails[0])
    again = read_parquet(tmp_path / "a" / "e.parquet")
    assert np.array_equal(again.column("images"), embeddings.thumbnails)
    assert again.labels.tolist() == embeddings.labels.tolist()
    with pytest.raises(InputError, match=r"ends in `.parquet`; received `e.csv`"):
        embeddings.to_parquet(tmp_path / "e.csv")


@pytest.mark.extra("datasets", "parquet")
def test_hugging_face_opens_the_parquet(embeddings, tmp_path):
    from datasets import Dataset

    found = Dataset.from_parquet(str(embeddings.to_parquet(tmp_path / "e.parquet")))
    assert found.num_rows == 6
    assert np.array_equal(np.array(found["embedding"], dtype=np.float32), embeddings.h)


@pytest.mark.extra("faiss")
@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_faiss_finds_the_nearest(metric):
    x = rng.normal(size=(50, 8)).astype(np.float32)
    index = Embeddings(h=x).to_faiss(metric)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    scores = {
        "cosine": unit @ unit.T,
        "dot": x @ x.T,
        "l2": -((x[:, None] - x[None]) ** 2).sum(axis=2),
    }[metric]
    _, found = index.search(unit if metric == "cosine" else x, 3)
    assert np.array_equal(found, np.argsort(-scores, axis=1)[:, :3])


@pytest.mark.extra("faiss")
def test_faiss_refuses(embeddings):
    with pytest.raises(InputError, match="cosine, dot or l2; received `hamming`"):
        embeddings.to_faiss("hamming")
    with pytest.raises(InputError, match="1 of 2 rows"):
        Embeddings(h=np.array([[1.0], [np.nan]])).to_faiss()


@pytest.mark.parametrize(
    ("call", "module", "extra"),
    [
        (lambda e: e.to_pandas(), "pandas", "notebook"),
        (lambda e: e.to_parquet("e.parquet"), "pyarrow", "parquet"),
        (lambda e: e.to_faiss(), "faiss", "faiss"),
    ],
    ids=["pandas", "parquet", "faiss"],
)
def test_a_missing_package_is_a_sentence(embeddings, monkeypatch, call, module, extra):
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ChiaroError, match=rf"pip install .*\[{extra}\]'"):
        call(embeddings)
