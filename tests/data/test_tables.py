"""Parquet and Hugging Face datasets, and the sentence where their packages are missing."""

import gzip
import io
import json
import sys
import warnings

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.data import (
    BlockOrder,
    from_frame,
    from_hugging_face,
    open_data,
    order_of,
    read_csv,
    read_feather,
    read_hugging_face,
    read_parquet,
)
from chiaroscuro.data import cells as cells_module
from chiaroscuro.engine import train
from chiaroscuro.errors import ChiaroError, InputError


def png(value: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), value, np.uint8)).save(out, "PNG")
    return out.getvalue()


def write(path, **columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.extra("parquet")
def test_pictures_texts_and_labels(tmp_path):
    cells = [{"bytes": png(i), "path": None} for i in range(3)]
    cells[1]["bytes"] = b"broken"
    path = write(tmp_path / "a.parquet", image=cells, label=[2, 1, 0], caption=["x", "y", "z"])
    data = read_parquet(path)
    assert data.column("images")[:, 0, 0, 0].tolist() == [0, 2]
    assert data.labels.tolist() == [2, 0]
    assert data.column("texts").tolist() == ["x", "z"]
    assert [one.path for one in data.skipped] == ["row 1"]


@pytest.mark.extra("parquet")
def test_numbers_side_by_side(tmp_path):
    data = read_parquet(write(tmp_path / "a.parquet", u=[1.0, 2.0], v=[3, 4], label=[0, 1]))
    assert data.column("x").tolist() == [[-1, -1], [1, 1]]
    plain = read_parquet(tmp_path / "a.parquet", standardise=False)
    assert plain.column("x").tolist() == [[1, 3], [2, 4]]


@pytest.mark.extra("parquet")
def test_lists_are_rows(tmp_path):
    data = read_parquet(write(tmp_path / "a.parquet", x=[[1.0, 2.0], [3.0, 4.0]]))
    assert data.column("x").tolist() == [[1, 2], [3, 4]]


@pytest.mark.extra("parquet")
def test_missing_values_are_counted(tmp_path):
    with pytest.raises(InputError, match="each of 3 rows; 2 are missing"):
        read_parquet(write(tmp_path / "a.parquet", u=[1.0, None, None]))


@pytest.mark.extra("parquet")
def test_damage_is_a_sentence(tmp_path):
    path = write(tmp_path / "a.parquet", u=[1.0])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read as parquet"):
        read_parquet(path)
    with pytest.raises(InputError, match="does not exist"):
        read_parquet(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("module", "read", "install"),
    [("pyarrow", read_parquet, "parquet"), ("datasets", read_hugging_face, "datasets")],
)
def test_without_the_library_it_says_what_to_install(tmp_path, monkeypatch, module, read, install):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(ChiaroError, match=rf"pip install .*\[{install}\]'"):
        read(tmp_path / "a.parquet")


@pytest.mark.extra("datasets")
def test_hugging_face(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another library's imports
        import datasets

        names = datasets.ClassLabel(names=["cat", "dog"])
        features = datasets.Features(
            {"x": datasets.Sequence(datasets.Value("float32")), "label": names}
        )
        part = datasets.Dataset.from_dict(
            {"x": [[1.0, 2.0], [3.0, 4.0]], "label": [1, 0]}, features=features
        )
        part.save_to_disk(str(tmp_path / "saved"))
        data = read_hugging_face(tmp_path / "saved")
        both = from_hugging_face(datasets.DatasetDict({"train": part, "test": part.select([0])}))
    assert data.class_names == ("cat", "dog")
    assert data.column("x").tolist() == [[1, 2], [3, 4]]
    assert data.labels.tolist() == [1, 0]
    assert both.part("test").column("x").tolist() == [[1, 2]]


# ---- CSV ----

TABLE = "age,colour,kind\n1,red,u\n3,blue,v\n5,red,u\n7,red,v\n"


def csv(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_a_table_of_numbers_and_categories(tmp_path, name, mark):
    data = read_csv(csv(tmp_path / name, TABLE.replace(",", mark)), labels="kind")
    assert data.scaling.names == ("age", "colour=blue", "colour=red")
    assert data.labels.tolist() == [0, 1, 0, 1]
    assert data.class_names == ("u", "v")
    x = data.column("x")
    assert x.dtype == np.float32
    assert np.allclose(x.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(x.std(axis=0), 1, atol=1e-6)
    assert np.allclose(x[:, 0], (np.array([1, 3, 5, 7]) - 4) / np.sqrt(5))


def test_tables_are_opened_by_name(tmp_path):
    path = csv(tmp_path / "a.csv", TABLE)
    data = open_data(f"table('{path}', labels='kind', drop=['colour'], test=0.5)")
    assert data.scaling.names == ("age",)
    ages = np.array([1.0, 3, 5, 7])
    train = ages[data.split == 0]  # the test side sets no scale
    assert len(train) == 2
    assert np.allclose(data.column("x")[:, 0], (ages - train.mean()) / train.std())
    packed = tmp_path / "b.csv.gz"
    packed.write_bytes(gzip.compress(TABLE.encode()))
    assert len(open_data(f"csv('{packed}', labels='kind')")) == 4


def test_an_index_that_pandas_wrote_is_left_out(tmp_path):
    data = read_csv(csv(tmp_path / "a.csv", ",a,b\n0,5,1\n1,6,2\n2,7,5\n"))
    assert data.scaling.names == ("a", "b")


@pytest.mark.parametrize("name", ["target", "y", "Class", "outcome"])
def test_what_is_called_like_a_target_is_refused_until_told(tmp_path, name):
    path = csv(tmp_path / "a.csv", f"a,{name}\n1,0\n2,1\n3,0\n")
    with pytest.raises(InputError, match=rf"labels='{name}'.*drop=\['{name}'\]"):
        read_csv(path)
    assert read_csv(path, labels=name).labels.tolist() == [0, 1, 0]
    assert read_csv(path, drop=[name]).labels is None


def test_texts_and_images_of_a_table(tmp_path):
    for i in range(2):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    path = csv(tmp_path / "a.csv", 'file,what,n\n0.png,"a, b",1\n1.png,c,2\n../x.png,d,3\n')
    data = read_csv(path, image="file", text="what")
    assert data.column("images")[:, 0, 0, 0].tolist() == [0, 1]
    assert data.column("texts").tolist() == ["a, b", "c"]
    assert data[[1]]["n"].tolist() == [2]
    assert [one.path for one in data.skipped] == ["row 2"]
    assert read_csv(path, text="what", drop=["file"]).inputs == ("texts",)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no rows"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n3\n", "needs 2 cells in each line; line 3 has 1"),
        ("a,a\n1,2\n", "two columns called `a`"),
        ("1,2\n3,4\n", "header=False"),
        ("a,b\n1,\n2,5\n3,\n", "`b` .* 2 are missing or infinite, the first in line 2"),
        ("a,b\n1,inf\n2,5\n", "1 are missing or infinite"),
        ("a,b\n" + "".join(f"1,w{i}\n" for i in range(40)), "40 different strings in 40 rows"),
        ('a,b\n"1,2\n', "damaged at line"),
        ("a,\n1,5\n", "Column 2 of .* needs a name"),
        ("label\n1\n2\n", "needs a column of numbers, texts or images"),
    ],
)
def test_bad_tables_are_sentences(tmp_path, text, sentence):
    with pytest.raises(InputError, match=sentence):
        read_csv(csv(tmp_path / "a.csv", text))


def test_bad_roles_are_sentences(tmp_path):
    path = csv(tmp_path / "a.csv", TABLE)
    with pytest.raises(InputError, match="has no column `kinds`; it has `age`, `colour`, `kind`"):
        read_csv(path, labels="kinds")
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(InputError, match="needs UTF-8; line 2"):
        read_csv(path)


def test_another_table_in_the_scaling_of_the_first(tmp_path):
    first = read_csv(csv(tmp_path / "a.csv", TABLE), labels="kind")
    other = read_csv(
        csv(tmp_path / "b.csv", "colour,age\ngreen,4\ngreen,9\nred,4\ngreen,4\n")
    ).scaled_by(first.scaling)
    x = other.column("x")
    assert np.allclose(x[0, 0], 0)
    assert np.allclose(x[2, 2], (1 - 0.75) / np.sqrt(0.75 * 0.25))
    assert np.allclose(x[0, 2], (0 - 0.75) / np.sqrt(0.75 * 0.25))
    third = read_csv(csv(tmp_path / "c.csv", "size,age\n1,4\n2,9\n"))
    with pytest.raises(InputError, match=r"has \['size'\] that were not"):
        third.scaled_by(first.scaling)
    again = type(first.scaling).read(first.scaling.table())
    assert again == first.scaling


# ---- frames and arrow ----


@pytest.mark.extra("notebook")
def test_pandas_frames():
    import pandas as pd

    frame = pd.DataFrame(
        {
            "age": [1, 3, 5, 7],
            "colour": pd.Categorical(["red", "blue", "red", "red"]),
            "kind": ["u", "v", "u", "v"],
        },
        index=[10, 20, 30, 40],
    )
    data = from_frame(frame, labels="kind")
    assert data.scaling.names == ("age", "colour=blue", "colour=red")
    assert data.labels.tolist() == [0, 1, 0, 1]
    assert open_data(frame.drop(columns="kind")).scaling.names == data.scaling.names
    frame.loc[20, "age"] = None
    with pytest.raises(InputError, match="1 are missing"):
        from_frame(frame, labels="kind")
    with pytest.raises(InputError, match="neither numbers nor strings"):
        from_frame(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"] * 3), "a": [1, 2, 3]}))


@pytest.mark.extra("polars")
def test_polars_frames():
    import polars

    frame = polars.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": ["x", "y", "x", "y"]})
    assert from_frame(frame).scaling.names == ("a", "b=x", "b=y")


@pytest.mark.extra("parquet")
def test_dictionaries_decimals_and_strings_do_not_vanish(tmp_path):
    import decimal

    import pyarrow as pa

    path = write(
        tmp_path / "a.parquet",
        colour=pa.array(["red", "blue", "red", "red"]).dictionary_encode(),
        price=pa.array([decimal.Decimal(f"{i}.5") for i in range(4)]),
        label=["u", "v", "u", "v"],
    )
    data = read_parquet(path, standardise=False)
    assert data.scaling.names == ("colour=blue", "colour=red", "price")
    assert data.column("x")[:, 2].tolist() == [0.5, 1.5, 2.5, 3.5]
    assert data.labels.tolist() == [0, 1, 0, 1]
    assert data.class_names == ("u", "v")


@pytest.mark.extra("parquet")
def test_kinds_that_no_model_takes_are_refused_by_name(tmp_path):
    import pyarrow as pa

    for column in (
        pa.array([1, 2], pa.timestamp("s")),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([b"x", b"y"]),
    ):
        path = write(tmp_path / "a.parquet", odd=column, a=[1.0, 2.0])
        with pytest.raises(InputError, match=r"`odd` of `a` holds neither .*drop=\['odd'\]"):
            read_parquet(path)
        assert read_parquet(path, drop=["odd"]).scaling.names == ("a",)
    path = write(tmp_path / "a.parquet", odd=[[1.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="need one length; they have 1 to 2"):
        read_parquet(path)


@pytest.mark.extra("notebook")
@pytest.mark.extra("parquet")
def test_the_pandas_index_is_left_out(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index([7, 9], name="key"))
    frame.to_parquet(tmp_path / "a.parquet")
    frame.reset_index(drop=True).to_feather(tmp_path / "a.feather")
    assert read_parquet(tmp_path / "a.parquet").scaling.names == ("a",)
    assert read_feather(tmp_path / "a.feather").scaling.names == ("a",)


@pytest.mark.extra("parquet")
def test_images_stay_in_their_groups_of_rows(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for shard in range(2):
        cells = [{"bytes": png(10 * shard + i), "path": None} for i in range(7)]
        table = pa.table({"image": cells, "label": [shard] * 7})
        pq.write_table(table, tmp_path / f"s-{shard}.parquet", row_group_size=3)
    whole = read_parquet(tmp_path)
    lazy = read_parquet(tmp_path, buffer=4)
    assert whole.blocks is None
    assert lazy.blocks.sizes.tolist() == [3, 3, 1, 3, 3, 1]
    assert isinstance(order_of(lazy, 4), BlockOrder)
    rows = [13, 0, 6, 7]
    assert (lazy[rows]["images"] == whole[rows]["images"]).all()
    assert lazy.labels.tolist() == whole.labels.tolist()


@pytest.mark.extra("parquet")
def test_parquet_is_read_within_the_limit(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", text=["x" * 10_000] * 3000)
    monkeypatch.setenv("CHIARO_MEMORY", "1MB")
    with pytest.raises(InputError, match="the limit is 1,048,576"):
        read_parquet(path)


@pytest.mark.extra("parquet")
def test_paths_in_parquet_stay_in_the_folder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "own.png").write_bytes(png(1))
    (tmp_path / "secret.png").write_bytes(png(2))
    cells = [
        {"bytes": None, "path": "own.png"},
        {"bytes": None, "path": "../secret.png"},
        {"bytes": None, "path": str(tmp_path / "secret.png")},
    ]
    import pyarrow as pa

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    path = write(tmp_path / "in" / "a.parquet", image=pa.array(cells, kind))
    data = read_parquet(path)
    assert data.column("images")[:, 0, 0, 0].tolist() == [1]
    assert [one.path for one in data.skipped] == ["row 1", "row 2"]
    assert len(read_parquet(path, outside=True)) == 3


@pytest.mark.extra("datasets")
def test_a_saved_data_set_that_lost_rows_is_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets

        whole = datasets.Dataset.from_dict({"text": [f"t{i}" for i in range(6)]})
        whole.save_to_disk(str(tmp_path / "saved"), num_shards=2)
        info = json.loads((tmp_path / "saved" / "dataset_info.json").read_text())
        info["splits"] = {"train": {"name": "train", "num_examples": 6, "num_bytes": 1}}
        (tmp_path / "saved" / "dataset_info.json").write_text(json.dumps(info))
        assert len(read_hugging_face(tmp_path / "saved")) == 6
        state = json.loads((tmp_path / "saved" / "state.json").read_text())
        state["_data_files"] = state["_data_files"][:1]
        (tmp_path / "saved" / "state.json").write_text(json.dumps(state))
        with pytest.raises(InputError, match="declares 6 rows and has 3"):
            read_hugging_face(tmp_path / "saved")


@pytest.mark.extra("parquet")
def test_parquet_elsewhere_is_read_by_groups_within_the_cache(tmp_path, monkeypatch):
    """Also where the copies of all shards do not fit into the cache, and training goes on."""
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CHIARO_SHARD_CACHE", "1")
    memory = fsspec.filesystem("memory")
    for shard in range(4):
        cells = [{"bytes": png(10 * shard + i), "path": None} for i in range(6)]
        cells[3]["bytes"] = b"no image" if shard == 1 else cells[3]["bytes"]
        file = io.BytesIO()
        pq.write_table(pa.table({"image": cells, "label": [shard] * 6}), file, row_group_size=2)
        memory.pipe(f"/groups/s-{shard}.parquet", file.getvalue())
    data = read_parquet("memory://groups/s-{0..3}.parquet")
    assert len(data) == 23
    assert [one.path for one in data.skipped] == ["row 9"]
    right = [10 * shard + i for shard in range(4) for i in range(6) if (shard, i) != (1, 3)]
    assert data[np.arange(23)]["images"][:, 0, 0, 0].tolist() == right
    assert data.labels.tolist() == [value // 10 for value in right]
    assert isinstance(order_of(data, 4), BlockOrder)
    assert len(list((tmp_path / "cache").rglob("*.shard"))) == 1
    settings = {"epochs": 1, "batch": 4, "views": {"first": "SimCLR(size=4, strength=0.1)"}}
    network = {"encoder": "MLP(d_in=48, d=8)", "projector": "Projector(d=4)"}
    source = {"source": "memory://groups/s-{0..3}.parquet"}
    run = train({**settings, "network": network, "data": source})
    assert run.history().records[-1]["step"] == 5


@pytest.mark.extra("parquet")
def test_one_group_of_rows_is_held_where_four_are_too_many(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    noise = np.random.default_rng(0).integers(0, 255, (12, 100, 100, 3), np.uint8)
    cells = []
    for image in noise:
        out = io.BytesIO()
        Image.fromarray(image).save(out, "PNG")
        cells.append({"bytes": out.getvalue(), "path": None})
    pq.write_table(pa.table({"image": cells}), tmp_path / "a.parquet", row_group_size=2)
    monkeypatch.setenv("CHIARO_MEMORY", "100KB")
    data = read_parquet(tmp_path / "a.parquet")  # 360 KB in groups of 60 KB
    assert (data[[11, 0, 5]]["images"] == noise[[11, 0, 5]]).all()
    held = [cells_module._four_groups.cache_info(), cells_module._one_group.cache_info()]
    assert [info.currsize for info in held] == [0, 1]
