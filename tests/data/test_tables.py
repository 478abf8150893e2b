"""Parquet and Hugging Face data sets, and the sentence where their packages are missing."""

import io
import sys
import warnings

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.data import from_hugging_face, read_hugging_face, read_parquet
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
    assert data.column("x").tolist() == [[1, 3], [2, 4]]


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
    with pytest.raises(InputError, match="not there"):
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
    with pytest.raises(ChiaroError, match=rf"pip install 'chiaroscuro\[{install}\]'"):
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
