"""JPEG by simplejpeg: the numbers of Pillow, and Pillow for whatever is unusual."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from chiaroscuro.data import pictures
from chiaroscuro.data.pictures import decode
from chiaroscuro.errors import ChiaroError


def photo(mode="RGB", exif=None, **options):
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (6, 9, 3), np.uint8)
    image = Image.fromarray(small).resize((73, 50), Image.Resampling.BICUBIC).convert(mode)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=88, **options, **({"exif": exif} if exif else {}))
    return out.getvalue()


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


FILES = {
    "plain": photo(),
    "no subsampling": photo(subsampling=0),
    "progressive": photo(progressive=True),
    "grey": photo("L"),
    "four inks": photo("CMYK"),
    "upright": photo(exif=turned(1)),
    "turned": photo(exif=turned(6)),
    "mirrored": photo(exif=turned(2)),
}


@pytest.mark.extra("jpeg")
@pytest.mark.parametrize("size", [None, 32, 20, 12, 6])
@pytest.mark.parametrize("name", FILES)
def test_both_decoders_give_the_same_numbers(name, size, monkeypatch, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(FILES[name])
    found, of_file = decode(FILES[name], size), decode(path, size)
    monkeypatch.setattr(pictures, "_simplejpeg", lambda: None)
    np.testing.assert_array_equal(found, decode(FILES[name], size))
    np.testing.assert_array_equal(of_file, found)


def test_a_smaller_image_is_decoded_at_once_and_looks_the_same():
    whole = np.asarray(decode(FILES["no subsampling"])).astype(float)
    for size, part in ((20, 2), (12, 4)):
        h, w = (-(-side // part) * part for side in whole.shape[:2])
        padded = np.pad(whole, ((0, h - 50), (0, w - 73), (0, 0)), mode="edge")
        means = padded.reshape(h // part, part, w // part, part, 3).mean(axis=(1, 3))
        small = Image.fromarray(means.round().astype(np.uint8))
        right = ImageOps.fit(small, (size, size), Image.Resampling.BILINEAR)
        assert np.abs(decode(FILES["no subsampling"], size).astype(float) - right).max() < 12


@pytest.mark.extra("jpeg")
@pytest.mark.parametrize("end", [200, 900])
def test_what_is_cut_short_is_refused_by_both(end, monkeypatch):
    for _ in range(2):
        with pytest.raises(ChiaroError, match=rf"^An image of {end} bytes cannot be decoded"):
            decode(FILES["plain"][:end])
        monkeypatch.setattr(pictures, "_simplejpeg", lambda: None)


class Counting:
    """In the place of the decoder: what it was asked for."""

    def __init__(self, colours="YCbCr", error=None):
        self.colours, self.error, self.decoded = colours, error, 0

    def decode_jpeg_header(self, encoded):
        return 50, 73, self.colours, "420"

    def decode_jpeg(self, encoded, colorspace, **size):
        self.decoded += 1
        if self.error:
            raise self.error
        return np.full((50, 73, 3), 7, np.uint8)


@pytest.mark.parametrize(
    ("name", "decoder", "fast"),
    [
        ("plain", Counting(), True),
        ("upright", Counting(), True),
        ("turned", Counting(), False),
        ("plain", Counting("CMYK"), False),
        ("plain", Counting(error=ValueError("premature end")), False),
    ],
    ids=["plain", "upright", "turned", "four inks", "damaged"],
)
def test_what_is_plain_takes_the_fast_way(name, decoder, fast, monkeypatch):
    monkeypatch.setattr(pictures, "_simplejpeg", lambda: decoder)
    found = decode(FILES[name])
    assert bool((found == 7).all()) == fast
    monkeypatch.setattr(pictures, "_simplejpeg", lambda: None)
    if not fast:
        np.testing.assert_array_equal(found, decode(FILES[name]))


def test_another_format_is_never_given_to_it(monkeypatch, tmp_path):
    decoder = Counting()
    monkeypatch.setattr(pictures, "_simplejpeg", lambda: decoder)
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P6 2 1 255 " + bytes(range(6)))
    assert decode(path).tolist() == decode(path.read_bytes()).tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert decoder.decoded == 0
