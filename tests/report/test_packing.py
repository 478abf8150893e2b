"""Arrays, samples and thumbnails, as a page holds them."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.errors import InputError
from chiaroscuro.report.packing import blob, coordinates, sheets, short, stratified

rng = np.random.default_rng(0)
TYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "f32": np.float32}


def unpacked(packed):
    data = np.frombuffer(base64.b64decode(packed["data"]), TYPES[packed["type"]])
    return data.reshape(packed["shape"])


@pytest.mark.parametrize("kind", TYPES.values())
def test_a_blob_comes_back(kind):
    array = rng.integers(0, 200, size=(3, 4)).astype(kind)
    np.testing.assert_array_equal(unpacked(blob(array)), array)
    np.testing.assert_array_equal(
        unpacked(blob(array.astype(array.dtype.newbyteorder(">")))), array
    )


def test_a_blob_of_another_type_is_refused():
    with pytest.raises(InputError, match="received int64"):
        blob(np.arange(3))


def test_coordinates_are_right_to_a_65535th_of_the_side():
    frames = [rng.normal(size=(30, 2)) * [5, 0.1] + 7 for _ in range(3)]
    packed = coordinates(frames)
    back = np.array(packed["low"]) + packed["side"] * unpacked(packed["points"]) / 65535
    assert np.abs(back - np.stack(frames)).max() <= packed["side"] / 65535 / 2 * 1.01


def test_coordinates_of_one_place_and_of_nan():
    packed = coordinates([np.zeros((3, 2))])
    assert packed["side"] == 1.0
    assert np.isfinite(coordinates([np.array([[np.nan, 1.0], [0.0, 2.0]])])["side"])


@pytest.mark.parametrize(("n", "most", "n_classes"), [(1000, 100, 7), (999, 10, 10), (50, 60, 3)])
def test_a_sample_holds_each_class_in_its_share(n, most, n_classes):
    labels = np.minimum(rng.geometric(0.4, n) - 1, n_classes - 1)
    rows = stratified(n, most, labels)
    assert len(rows) == len(set(rows.tolist())) == min(n, most)
    for c in np.unique(labels):
        share = (labels == c).sum() * most / n
        assert (labels[rows] == c).sum() >= 1
        if n > most:
            assert abs((labels[rows] == c).sum() - share) <= max(1.0, n_classes / 2)


def test_sheets_hold_every_thumbnail_in_order():
    colours = rng.integers(0, 255, size=(1500, 3)).astype(np.uint8)
    thumbs = np.broadcast_to(colours[:, None, None], (1500, 16, 16, 3))
    packed = sheets(thumbs)
    side, columns, tiles = packed["side"], packed["columns"], packed["tiles"]
    assert len(packed["images"]) == 2
    for i in (0, 1, 40, 1023, 1024, 1499):
        image = packed["images"][i // tiles].removeprefix("data:image/jpeg;base64,")
        sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(image))))
        y, x = divmod(i % tiles, columns)
        tile = sheet[y * side : (y + 1) * side, x * side : (x + 1) * side].astype(int)
        middle = tile[side // 4 : -side // 4, side // 4 : -side // 4].mean(axis=(0, 1))
        assert np.abs(middle - colours[i]).max() < 25


def test_sheets_shrink_to_their_budget():
    noise = rng.integers(0, 255, size=(600, 64, 64, 3)).astype(np.uint8)
    packed = sheets(noise, budget=300_000)
    assert packed["side"] < 64
    assert sum(map(len, packed["images"])) * 3 / 4 < 330_000


def test_numbers_for_json():
    found = short({"a": (np.int64(3), np.inf, 1.23456789), "b": np.eye(2)})
    assert found == {"a": [3, None, 1.23457], "b": [[1, 0], [0, 1]]}
