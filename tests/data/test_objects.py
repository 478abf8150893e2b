"""What each kind of data in memory is taken for, and what is refused as ambiguous."""

import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from chiaroscuro.data import SECOND, Dataset, Process, from_object, holds_files, open_data
from chiaroscuro.data import objects as objects_module
from chiaroscuro.data.laws import Normal
from chiaroscuro.data.mixings import Linear
from chiaroscuro.data.spaces import Box
from chiaroscuro.errors import InputError

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(6, 4)).astype(np.float32)
IMAGES = RNG.integers(0, 255, (6, 8, 8, 3), np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


class Items(TorchDataset):
    """A map-style dataset that counts which of its items are read."""

    def __init__(self, items):
        self.items, self.read = items, []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        self.read.append(row)
        return self.items[row]


class Stream(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def pictures():
    return [Image.fromarray(image) for image in IMAGES]


TAKEN = {
    "array": (ROWS, {"x": ROWS}),
    "tensor": (torch.from_numpy(ROWS), {"x": ROWS}),
    "images": (IMAGES, {"images": IMAGES}),
    "images, channels first": (np.moveaxis(IMAGES, -1, 1).copy(), {"images": IMAGES}),
    "nested lists": (ROWS.tolist(), {"x": ROWS}),
    "mapping": ({"x": ROWS, "labels": LABELS}, {"x": ROWS, "labels": LABELS}),
    "list of arrays": (list(ROWS), {"x": ROWS}),
    "PIL": (pictures(), {"images": IMAGES}),
    "strings": (["a cat", "a dog"], {"texts": np.array(["a cat", "a dog"], object)}),
    "tensors with labels": (
        TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(LABELS)),
        {"x": ROWS, "labels": LABELS},
    ),
    "samples": (Items(list(torch.from_numpy(ROWS))), {"x": ROWS}),
    "images with labels": (
        Items(list(zip(pictures(), LABELS.tolist(), strict=True))),
        {"images": IMAGES, "labels": LABELS},
    ),
    "ready pairs": (Items([(x, x + 1) for x in ROWS]), {"x": ROWS, SECOND: ROWS + 1}),
    "pairs with labels": (
        Items([(x, x + 1, int(y)) for x, y in zip(ROWS, LABELS, strict=True)]),
        {"x": ROWS, SECOND: ROWS + 1, "labels": LABELS},
    ),
    "pairs of texts": (
        [("a", "b"), ("c", "d")],
        {"texts": np.array(["a", "c"], object), SECOND: np.array(["b", "d"], object)},
    ),
    "images with texts": (
        list(zip(pictures(), ["a"] * 6, strict=True)),
        {"images": IMAGES, "texts": np.array(["a"] * 6, object)},
    ),
    "mappings": (
        Items([{"x": x, "label": int(y)} for x, y in zip(ROWS, LABELS, strict=True)]),
        {"x": ROWS, "labels": LABELS},
    ),
    "iterable": (Stream([(x, int(y)) for x, y in zip(ROWS, LABELS, strict=True)]), {"x": ROWS}),
}


@pytest.mark.parametrize(("data", "columns"), TAKEN.values(), ids=TAKEN)
def test_what_each_kind_is_taken_for(data, columns):
    table = open_data(data)
    n = len(next(iter(columns.values())))
    assert len(table) == n
    batch = table[np.arange(n)]
    for name, values in columns.items():
        np.testing.assert_array_equal(batch[name], values)
    inputs = [name for name in columns if name != "labels"]
    assert list(table.inputs) == inputs


def test_paths_are_read_and_known_as_files(tmp_path):
    paths = []
    for number, image in enumerate(IMAGES):
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(image).save(paths[-1])
    for given in (paths, list(map(str, paths))):
        table = from_object(given)
        np.testing.assert_array_equal(table.column("images"), IMAGES)
        assert holds_files(table)
    both = from_object([(str(path), f"number {i}") for i, path in enumerate(paths)])
    assert both.column("texts")[3] == "number 3"
    assert holds_files(from_object(pictures()))
    assert not holds_files(from_object(IMAGES))


def test_items_are_read_when_a_batch_needs_them():
    items = Items([(torch.from_numpy(x), int(y)) for x, y in zip(ROWS, LABELS, strict=True)])
    items.targets = LABELS.tolist()  # as torchvision's datasets keep them
    items.classes = ["a", "b", "c"]
    table = from_object(items)
    assert len(set(items.read)) <= 3  # the first says what they are, some whether labels agree
    assert table.class_names == ("a", "b", "c")
    items.read.clear()
    _ = table[[4, 2]]
    assert items.read == [4, 2]


def test_a_process_is_its_data_set():
    process = Process(Box(2), content=1, style=Normal(0.3), mixing=Linear(2))
    assert len(from_object(process)) == len(process.dataset())
    table = Dataset({"x": ROWS})
    assert from_object(table) is table


def test_a_frame_is_read_by_its_columns():
    pandas = pytest.importorskip("pandas")
    table = from_object(pandas.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1], "label": LABELS}))
    assert table.column("x").shape == (6, 2)
    assert table.labels.tolist() == LABELS.tolist()


WRONG = {
    "float as a label": ([(ROWS[0], 0.5)] * 3, r"\(ndarray, float\), which is ambiguous"),
    "four parts": ([(1.0, "a", "b", "c")] * 3, "which is ambiguous"),
    "no paths": (["a.png", "b.png"], r"2 of the 2 paths .* are no image files .* `a.png`"),
    "paths and texts": (["a.png", "a cat"], "are taken for paths, others for texts"),
    "nothing": ([], "has no samples"),
    "a number": (3, "Data of type `int` are not known here"),
    "objects": ([object()] * 2, "needs to be an array, a tensor, an image, a path or a string"),
    "labels of two kinds": (Items([(ROWS[0], 1), (ROWS[1], "b")]), "Labels need whole numbers"),
    "two inputs": ([{"a": ROWS[0], "b": ROWS[1]}] * 2, "one input of a kind"),
}


@pytest.mark.parametrize(("data", "words"), WRONG.values(), ids=WRONG)
def test_what_is_ambiguous_is_refused(data, words):
    with pytest.raises(InputError) as caught:
        from_object(data)
    assert re.search(words, str(caught.value)), str(caught.value)


def test_samples_of_unequal_shape_are_refused_with_their_shapes():
    table = from_object(Items([np.ones(3), np.ones(4)]))
    with pytest.raises(InputError, match=r"received 2, from \(3,\) to \(4,\)"):
        _ = table[[0, 1]]


def test_an_endless_stream_is_refused(monkeypatch):
    monkeypatch.setattr(objects_module, "MOST_ITEMS", 10)
    with pytest.raises(InputError, match="more than 10 items"):
        from_object(Stream([ROWS[0]] * 11))


def test_a_tuple_of_one_is_a_sample():
    """As items of a `TensorDataset` of one tensor are."""
    assert from_object(TensorDataset(torch.from_numpy(ROWS))).column("x").shape == ROWS.shape


def test_pairs_may_have_two_shapes():
    table = from_object([(np.ones(3), np.zeros((2, 4)))] * 3)
    assert table.column("x").shape == (3, 3)
    assert table.column(SECOND).shape == (3, 2, 4)


class Named:
    """A stranger's class of some name."""

    def __new__(cls, name, **parts):
        return type(name, (), parts)()


NEAR = {
    "generator": ((row for row in ROWS), r"`list\(data\)`"),
    "loader": (DataLoader(TensorDataset(torch.from_numpy(ROWS))), r"its `dataset`.*engine.fit"),
    "lazy frame": (Named("LazyFrame"), r"data.collect\(\)"),
    "column": (Named("Series", __len__=len, __getitem__=len), r"data.to_frame\(\)"),
    "x and y": ((ROWS, LABELS), r"shapes \(6, 4\), \(6,\), which is ambiguous.*\"labels\": y"),
    "text as a label": ([(ROWS[0], "cat")] * 3, r"\(ndarray, str\), which is ambiguous"),
    "shapes": ([np.ones(3), np.ones(4)], r"one shape; received 2, from \(3,\) to \(4,\)"),
}


@pytest.mark.parametrize(("data", "words"), NEAR.values(), ids=NEAR)
def test_what_comes_near_is_told_what_to_give(data, words):
    with pytest.raises(InputError, match=words):
        from_object(data)


def test_an_iterable_of_hugging_face_is_read_once():
    datasets = pytest.importorskip("datasets")
    rows = {"x": ROWS.tolist(), "label": LABELS.tolist()}
    table = from_object(datasets.Dataset.from_dict(rows).to_iterable_dataset())
    assert table.column("x").shape == ROWS.shape
    assert table.labels.tolist() == LABELS.tolist()


def test_an_iterable_of_hugging_face_of_numbers_is_a_table():
    datasets = pytest.importorskip("datasets")
    rows = [{"a": float(row[0]), "b": float(row[1]), "label": 1} for row in ROWS]
    stream = datasets.IterableDataset.from_generator(lambda: iter(rows))
    whole = from_object(datasets.Dataset.from_list(rows))
    table = from_object(stream)
    assert table.column("x").shape == (len(ROWS), 2)
    np.testing.assert_array_equal(table.column("x"), whole.column("x"))


class Relabelled(TorchDataset):
    """Items whose labels are not those of `targets`, as under a `target_transform`."""

    targets = tuple(range(20))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, row):
        return torch.zeros(3), self.targets[row] % 2


def test_labels_are_those_of_the_items():
    assert np.unique(from_object(Relabelled()).columns["labels"]).tolist() == [0, 1]
