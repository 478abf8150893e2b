"""Decoding: upright RGB bytes from whatever comes, and a sentence over what cannot be decoded."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from chiaroscuro.data import decode
from chiaroscuro.data import pictures as module
from chiaroscuro.errors import ChiaroError


def encoded(array: np.ndarray, kind: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, kind, **options)
    return out.getvalue()


RGB = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)


def test_bytes_and_paths(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded(RGB))
    assert (decode(tmp_path / "a.png") == RGB).all()
    assert (decode(encoded(RGB)) == RGB).all()


def test_grey_sixteen_bits_and_transparency():
    grey = RGB[..., 0]
    assert (decode(encoded(grey)) == grey[..., None]).all()
    deep = grey.astype(np.uint16) * 257
    assert (decode(encoded(deep)) == grey[..., None]).all()
    clear = np.dstack([RGB, np.zeros((6, 9), np.uint8)])
    assert (decode(encoded(clear)) == 255).all()


def test_pictures_stand_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    assert decode(encoded(RGB, exif=exif.tobytes())).shape == (9, 6, 3)


def test_size_takes_the_middle_square():
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200
    assert decode(encoded(wide), size=4).shape == (4, 4, 3)
    assert (decode(encoded(wide), size=4) == 200).all()


@given(st.binary(max_size=300), st.integers(0, 400))
@settings(deadline=None, max_examples=150)
def test_broken_bytes_are_one_sentence(junk, at):
    whole = bytearray(encoded(RGB))
    whole[at : at + len(junk)] = junk
    # it may still be a picture; nothing but a sentence may come otherwise
    with contextlib.suppress(ChiaroError):
        assert decode(bytes(whole)).shape[2] == 3


def test_a_bomb_is_refused_by_its_claim(monkeypatch):
    monkeypatch.setattr(module, "MAX_PIXELS", 50)
    with pytest.raises(ChiaroError, match="9 x 6 pixels; at most 50"):
        decode(encoded(RGB))
