"""Embeddings in the tables and indices of other libraries: parquet, Arrow, pandas, faiss."""

import numpy as np
import pytest

import chiaroscuro as cs
from chiaroscuro.artifacts import Embeddings
from chiaroscuro.artifacts.pieces import blocks
from chiaroscuro.artifacts.sources import from_frame, open_source, read_labels
from chiaroscuro.diagnostics import diagnose
from chiaroscuro.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 5)).astype(np.float32)
Y = RNG.integers(0, 3, 200)
WORDS = np.array(["cat", "dog", "owl"])[Y]


def table():
    import pyarrow as pa

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 5)
    ids = [f"s{k}" for k in range(200)]
    return pa.table({"id": ids, "embedding": vectors, "label": WORDS, "other": ids})


def is_it(found):
    assert np.array_equal(found.h, X)
    assert found.class_names[found.labels].tolist() == WORDS.tolist()
    assert found.ids[7] == "s7"


@pytest.mark.extra("parquet")
def test_parquet_in_row_groups_is_read_when_it_is_asked_for(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=64)
    source = open_source(tmp_path / "a.parquet")
    assert source.arrays["h"].shape == (200, 5)
    assert source.left == ("other",)
    is_it(source.take(None))
    assert np.array_equal(source.take([199, 0, 70]).h, X[[199, 0, 70]])
    whole = np.concatenate([rows for _, rows in blocks(source.arrays["h"], 400)])
    assert np.array_equal(whole, X)
    found = diagnose(tmp_path / "a.parquet", rows=90)
    assert found.sampling["scanned"] == 200
    assert found.measures["n_classes"] == 3


@pytest.mark.extra("parquet")
def test_what_we_write_is_read_back(tmp_path):
    made = Embeddings(
        h=X,
        z=X[:, :2],
        labels=np.where(np.arange(200) == 5, -1, Y),
        class_names=["a", "b", "c"],
        split=(np.arange(200) > 150).astype(int),
        ids=np.arange(200),
        factors=X[:, :2].astype(float),
        factor_names=["p", "q"],
        thumbnails=RNG.integers(0, 255, (200, 4, 4, 3)).astype(np.uint8),
    )
    found = Embeddings.load(made.to_parquet(tmp_path / "a.parquet"))
    for name in ("h", "z", "labels", "class_names", "split", "ids", "factors", "factor_names"):
        assert np.array_equal(getattr(found, name), getattr(made, name)), name


@pytest.mark.extra("parquet")
@pytest.mark.parametrize("kind", ["file", "stream", "feather", "compressed"])
def test_arrow(tmp_path, kind):
    import pyarrow as pa
    from pyarrow import feather

    path = tmp_path / ("a.feather" if kind in ("feather", "compressed") else "a.arrow")
    if path.suffix == ".feather":
        how = "lz4" if kind == "compressed" else "uncompressed"
        feather.write_feather(table(), str(path), compression=how, chunksize=50)
    else:
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with new(str(path), table().schema) as writer:
            writer.write_table(table(), max_chunksize=60)
    is_it(Embeddings.load(path))


@pytest.mark.extra("parquet")
def test_shards_and_damage(tmp_path):
    import pyarrow.parquet as pq

    folder = tmp_path / "shards"
    folder.mkdir()
    for k in range(4):
        pq.write_table(table().slice(50 * k, 50), folder / f"part-{k}.parquet")
    is_it(Embeddings.load(folder))
    (tmp_path / "b.parquet").write_bytes((folder / "part-0.parquet").read_bytes()[:300])
    with pytest.raises(InputError, match=r"`b.parquet` cannot be read as parquet: its 300 bytes"):
        open_source(tmp_path / "b.parquet")
    (tmp_path / "b.arrow").write_bytes(b"nonsense" * 9)
    with pytest.raises(InputError, match=r"`b.arrow` is not an Arrow file, or is damaged"):
        open_source(tmp_path / "b.arrow")


@pytest.mark.extra("parquet")
def test_vectors_of_several_lengths_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = [[1.0, 2.0], [3.0, 4.0, 5.0], [6.0]]
    pq.write_table(pa.table({"vector": cells}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"`vector` of `a.parquet` needs vectors of one length"):
        Embeddings.load(tmp_path / "a.parquet")


@pytest.mark.extra("notebook", "parquet", "polars", "datasets")
def test_tables_in_memory():
    import datasets
    import polars

    frames = [table(), table().to_pandas(), polars.from_arrow(table()), datasets.Dataset(table())]
    for frame in frames:
        is_it(from_frame(frame).take(None))
    numbers = table().to_pandas()[["label"]].assign(a=X[:, 0], b=X[:, 1])
    assert np.array_equal(from_frame(numbers).take(None).h, X[:, :2])


@pytest.mark.extra("notebook")
def test_rows_are_a_frame():
    h = np.vstack([X, X[:30]])
    found = cs.diagnose({"h": h, "ids": np.array([f"s{k}" for k in range(230)])})
    rows = found.rows("duplicates")
    assert list(rows.columns) == ["row", "id", "twin", "distance", "twin_id"]
    assert len(rows) == 60
    assert found.rows("duplicated_samples").equals(rows)
    better = cs.compare({"h": X, "labels": Y}, {"h": X[:, ::-1] ** 3, "labels": Y})
    assert "score" in better.rows("first_better").columns


@pytest.mark.extra("faiss")
@pytest.mark.parametrize("kind", ["Flat", "IVF4,Flat", "IDMap,Flat", "HNSW8,Flat"])
def test_an_index_of_faiss(tmp_path, kind):
    import faiss

    index = faiss.index_factory(5, kind)
    index.train(X)
    if kind.startswith("IDMap"):
        index.add_with_ids(X, np.arange(1000, 1200))
    else:
        index.add(X)
    faiss.write_index(index, str(tmp_path / "a.faiss"))
    found = Embeddings.load(tmp_path / "a.faiss")
    assert np.array_equal(found.h, X)
    if kind.startswith("IDMap"):
        assert found.ids[0] == 1000
    assert np.array_equal(from_frame(index).take(None).h, X)
    (tmp_path / "b.faiss").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="is not an index of faiss"):
        open_source(tmp_path / "b.faiss")


@pytest.mark.extra("parquet")
def test_labels_of_a_parquet(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(table().select(["id", "label"]), tmp_path / "l.parquet")
    ids = np.array([f"s{k}" for k in range(200)])[::-1]
    found = read_labels(tmp_path / "l.parquet", lambda: ids, 200)
    assert found["class_names"][found["labels"]].tolist() == WORDS[::-1].tolist()
