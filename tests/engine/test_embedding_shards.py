"""Embeddings in shards: the numbers of `embed`, by ranks, workers and Ray, and what goes on."""

import json

import numpy as np
import pytest

import forked
from chiaroscuro.artifacts import Embeddings
from chiaroscuro.artifacts.sources import open_source
from chiaroscuro.cli import main
from chiaroscuro.data import Dataset, write_tars
from chiaroscuro.engine import Passing, embed, embed_shards, open_run, read_settings, train
from chiaroscuro.engine import embedding_shards as module
from chiaroscuro.errors import InputError

VERBS = """
import sys
import chiaroscuro.engine
from chiaroscuro.cli import main
from chiaroscuro.engine import joined_ranks, rank

run, out = sys.argv[1:]
passes, shares = [], sys.modules["chiaroscuro.engine.embedding"].stretch

def counted(n, passing):
    mine, ranks = shares(n, passing)
    passes.append(len(mine))
    return mine, ranks

with joined_ranks():
    assert main(["embed", run, "--out", f"{out}/shards", "--rows", "256"]) == 0
    assert main(["embed", run, "--out", f"{out}/whole.npz"]) == 0
    assert main(["evaluate", run, "--json"]) == 0
    for name in ("embedding", "snapshots"):
        sys.modules[f"chiaroscuro.engine.{name}"].stretch = counted
    assert main(["diagnose", run, "--workers", "1", "--out", f"{out}/two"]) == 0
    print("rank", rank(), "passes", *passes, "of 3 batches")
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on images in tar archives, 700 of them."""
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (700, 8, 8, 3), np.uint8), np.arange(700) % 3
    write_tars(Dataset({"images": images, "labels": labels}), folder / "tars", samples=200)
    settings = read_settings(
        "simclr",
        [
            *("epochs=1", "batch=100", "views.first=SimCLR(size=8, strength=0.5)"),
            *("network.encoder=MLP(d_in=192, d=6)", "network.projector=Projector(d=4)"),
            *("optimiser.name=sgd", "schedule.warmup=0"),
            f"data.source=tar('{folder}/tars', check='none', test=0.2)",
        ],
    )
    train(settings, folder / "run")
    return folder


def columns(folder):
    """All shards, one after the other."""
    parts = [Embeddings.load(path) for path in sorted(folder.glob("*.npz"))]
    names = ("h", "z", "labels", "ids")
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


def test_shards_hold_the_numbers_of_embed_bit_by_bit(trained, tmp_path, capsys):
    whole = embed(trained / "run")
    call = ["embed", str(trained / "run"), "--out", str(tmp_path / "out"), "--rows", "256"]
    assert main([*call, "--workers", "1"]) == 0
    assert capsys.readouterr().out == f"embeddings: {tmp_path / 'out'}\n"
    found = columns(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("part-*.npz"))) == 3
    for name, values in found.items():
        assert values.tobytes() == getattr(whole, name).tobytes(), name
    about = json.loads((tmp_path / "out" / "shards.json").read_text())
    assert (about["n"], about["rows"], about["kind"]) == (700, 256, "npz")


def test_what_was_interrupted_goes_on(trained, tmp_path, monkeypatch):
    out, written = tmp_path / "out", []

    def fails(columns, path):
        if len(written) == 1:
            raise OSError("the disk is full")
        written.append(path.name)
        module._write_npz(columns, path)

    monkeypatch.setitem(module._WRITERS, "npz", fails)
    with pytest.raises(OSError, match="full"):
        embed_shards(trained / "run", None, out, rows=256)
    assert sorted(path.name for path in out.iterdir()) == ["part-000000.npz", "shards.json"]
    before = (out / "part-000000.npz").stat().st_mtime_ns
    monkeypatch.undo()
    embed_shards(trained / "run", None, out, rows=256)
    assert (out / "part-000000.npz").stat().st_mtime_ns == before
    assert columns(out)["h"].tobytes() == embed(trained / "run").h.tobytes()
    with pytest.raises(InputError, match=r"holds other shards: its `rows` is 256, and 512 is"):
        embed_shards(trained / "run", None, out, rows=512)


def animals():
    rng = np.random.default_rng(1)
    columns = {
        "images": rng.integers(0, 256, (600, 8, 8, 3), np.uint8),
        "labels": np.arange(600) % 4 - 1,
        "factors": rng.normal(size=(600, 2)).astype(np.float32),
    }
    return Dataset(columns, "animals", ("cat", "dog", "eel"), factor_names=("size", "age"))


def test_names_are_kept_and_a_shard_that_is_missing_is_said(trained, tmp_path):
    embed_shards(trained / "run", animals(), tmp_path / "out", rows=256)
    found = open_source(tmp_path / "out").take(None)
    assert found.class_names.tolist() == ["cat", "dog", "eel"]
    assert found.factor_names.tolist() == ["size", "age"]
    assert found.labels.tolist() == animals().labels.tolist()
    (tmp_path / "out" / "part-000001.npz").unlink()
    with pytest.raises(InputError, match=r"holds 2 of the 3 shards of 600 rows.*embed.*goes on"):
        open_source(tmp_path / "out")
    (tmp_path / "out" / "shards.json").write_text('{"n": "600"}')
    with pytest.raises(InputError, match=r"`shards\.json` is damaged"):
        open_source(tmp_path / "out")


def test_memory_holds_one_shard(trained, tmp_path, monkeypatch):
    """Rows that are in memory together: those of a shard, whatever the data."""
    held = []
    inner = module._shard
    monkeypatch.setattr(module, "_shard", lambda *args: held.append(inner(*args)) or {**held[-1]})
    embed_shards(trained / "run", None, tmp_path / "out", rows=256)
    assert [len(shard["h"]) for shard in held] == [256, 256, 188]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rows": 100}, r"^`embed_shards\(rows\)` needs a multiple of 256; received 100\.$"),
        ({"kind": "csv"}, r"needs `npz` or `parquet`; received `csv`"),
        ({"engine": "dask"}, r"needs `here` or `ray`; received `dask`"),
    ],
    ids=["rows", "kind", "engine"],
)
def test_wrong_calls_are_sentences(trained, tmp_path, options, sentence):
    with pytest.raises(InputError, match=sentence):
        embed_shards(trained / "run", None, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_else_is_left_alone(trained, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="needs to be a new or an empty folder"):
        embed_shards(trained / "run", None, tmp_path)
    call = ["embed", str(trained / "run"), "--engine", "ray", "--out", str(tmp_path / "a.npz")]
    assert main(call) == 2
    assert "write a folder of shards" in capsys.readouterr().err


def test_ranks_share_the_work(trained, tmp_path):
    """`chiaro embed` on two ranks: shards, one file, an evaluation and a diagnosis by the first."""
    script = tmp_path / "verbs.py"
    script.write_text(VERBS)
    done = forked.run(script, str(trained / "run"), str(tmp_path), world=2)
    assert done.codes == [0, 0], done.err
    assert done.out.count("embeddings:") == 2
    assert done.out.count('"knn_20"') > 0
    assert done.out.count('"protocol"') == 1
    right = embed(trained / "run")
    assert Embeddings.load(tmp_path / "whole.npz").h.tobytes() == right.h.tobytes()
    assert columns(tmp_path / "shards")["z"].tobytes() == right.z.tobytes()
    # 700 rows are three batches; trained and untrained networks, then the two views
    assert "rank 0 passes 1 1 1 of 3 batches" in done.out
    assert "rank 1 passes 2 2 2 of 3 batches" in done.out
    assert main(["diagnose", str(trained / "run"), "--out", str(tmp_path / "one")]) == 0
    one, two = (json.loads((tmp_path / n / "diagnosis.json").read_text()) for n in ("one", "two"))
    assert one == two


def test_workers_and_devices_of_a_module(trained):
    run = open_run(trained / "run")
    data = {"images": np.random.default_rng(1).integers(0, 256, (300, 8, 8, 3), np.uint8)}
    one, two = (
        embed(run, data, passing=passing)
        for passing in (Passing(device="cpu"), Passing(workers=2, precision="bfloat16"))
    )
    assert one.h.tobytes() == two.h.tobytes()  # a CPU computes in full precision
    with pytest.raises(InputError, match=r"`precision` needs one of"):
        Passing(precision="half")


@pytest.mark.extra("ray", "parquet")
def test_ray_writes_the_same_numbers_as_parquet(trained, tmp_path, capsys):
    import pyarrow.parquet

    out = tmp_path / "out"
    call = ["embed", str(trained / "run"), "--engine", "ray", "--rows", "256", "--out", str(out)]
    assert main([*call, "--data", f"{trained}/tars/*.tar"]) == 0
    right = embed(trained / "run")
    parts = [pyarrow.parquet.read_table(path) for path in sorted(out.glob("part-*.parquet"))]
    assert [len(part) for part in parts] == [256, 256, 188]
    for name in ("h", "z"):
        found = np.concatenate([np.stack(part[name].to_numpy()) for part in parts])
        assert found.tobytes() == getattr(right, name).tobytes()
    labels = np.concatenate([part["labels"].to_numpy() for part in parts])
    assert labels.tolist() == right.labels.tolist()


@pytest.mark.extra("parquet")
def test_parquet_shards(trained, tmp_path):
    import pyarrow.parquet

    embed_shards(trained / "run", None, tmp_path / "out", rows=512, kind="parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out" / "part-000001.parquet")
    right = embed(trained / "run")
    assert np.stack(table["h"].to_numpy()).tobytes() == right.h[512:].tobytes()
    assert table["ids"].to_pylist() == right.ids[512:].tolist()
    embed_shards(trained / "run", animals(), tmp_path / "animals", rows=512, kind="parquet")
    found = open_source(tmp_path / "animals").take(None)
    assert found.class_names.tolist() == ["cat", "dog", "eel"]
    assert found.labels.tolist() == animals().labels.tolist()
    assert found.factor_names.tolist() == ["size", "age"]
    assert found.factors.tolist() == animals().columns["factors"].tolist()
