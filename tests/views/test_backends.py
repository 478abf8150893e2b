"""One picture, however it is made: the naive formulas, torch and C; and how C is found."""

import threading

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from chiaroscuro.errors import InputError
from chiaroscuro.views import SimCLR, backend, compiled, reference, render
from chiaroscuro.views.render import in_threads
from views import naive

SAME = 2e-5
"""Between backends: float32 in different order, over at most 512 additions and one division."""
BYTE = 0.5 / 255 + SAME
"""Between a float and its nearest uint8."""


def images(n=6, channels=3, height=16, width=16, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (n, channels, height, width), dtype=np.uint8)
    x[0] = 255 * (x[0] > 127)  # saturated colours, black and white
    x[-1] = x[-1, :1]  # a gray picture: its hue is nowhere
    return torch.from_numpy(x)


def parameters(policy, x, seed=0):
    return policy.sample(tuple(x.shape[2:]), policy.draws(range(len(x)), seed, 0, 0))


QUICK = ("-O0", "-std=gnu11", "-fPIC", "-shared")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Look for the library anew, in an empty cache; built in a hurry."""
    monkeypatch.setattr(compiled, "_FLAGS", QUICK)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled._loaded.cache_clear()
    yield tmp_path / "chiaroscuro"
    compiled._loaded.cache_clear()


LIBRARY = compiled.library()
needs_c = pytest.mark.skipif(not LIBRARY, reason=compiled.why_not() or "c is turned off")
BACKENDS = [
    pytest.param("torch"),
    pytest.param("c", marks=needs_c),
]


# ---- the formulas ----

OPERATIONS = {
    "brightness": (reference.brightness, naive.brightness, (0.0, 0.3, 1.0, 1.8)),
    "contrast": (reference.contrast, naive.contrast, (0.0, 0.3, 1.0, 1.8)),
    "saturation": (reference.saturation, naive.saturation, (0.0, 0.3, 1.0, 1.8)),
    "hue": (reference.hue, naive.hue, (-0.5, -0.2, 0.0, 0.07, 0.5)),
}


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("name", OPERATIONS)
def test_colours_equal_the_naive_formulas(name, channels):
    operation, expected, factors = OPERATIONS[name]
    x = images(4, channels, 7, 6).double() / 255
    for factor in factors:
        got = operation(x, torch.full((4, 1, 1, 1), factor, dtype=torch.float64))
        for a, b in zip(got, x, strict=True):
            assert np.abs(a.numpy() - expected(b.numpy(), factor)).max() < 1e-12


def test_gray_solarise_and_blur_equal_the_naive_formulas():
    x = images(4, 3, 7, 6).double() / 255
    sigma = np.array([0.1, 0.5, 1.0, 2.0], dtype=np.float32)
    gray, inverted = reference.grayscale(x), reference.solarise(x, 0.3)
    for kernel in (1, 3, 5, 11):
        blurred = reference.blur(x, sigma, kernel)
        for i in range(4):
            expected = naive.blur(x[i].numpy(), float(sigma[i]), kernel)
            assert np.abs(blurred[i].numpy() - expected).max() < 1e-12
    for i in range(4):
        assert np.abs(gray[i].numpy() - naive.grayscale(x[i].numpy())).max() < 1e-12
        assert np.abs(inverted[i].numpy() - naive.solarise(x[i].numpy(), 0.3)).max() == 0


@pytest.mark.parametrize("antialias", [True, False])
def test_resizing_equals_interpolate(antialias):
    x = torch.rand(1, 3, 40, 23, dtype=torch.float64, generator=torch.manual_seed(0))
    row = np.zeros(1, dtype=parameters(SimCLR(8), images()).dtype)
    for top, left, height, width in ((0, 0, 40, 23), (3, 5, 9, 17), (39, 22, 1, 1), (2, 0, 30, 2)):
        row["top"], row["left"], row["height"], row["width"] = top, left, height, width
        box = x[:, :, top : top + height, left : left + width]
        for size in (1, 7, 16, 50):
            expected = F.interpolate(box, (size, size), mode="bilinear", antialias=antialias)
            for flip in (False, True):
                row["flip"] = flip
                got = reference.crop_resize(x, row, size, antialias)
                assert torch.allclose(got.flip(3) if flip else got, expected, atol=1e-6)


# ---- every backend ----


def make(name, policy, x, rows, monkeypatch, **options):
    monkeypatch.setenv(compiled.VARIABLE, name)
    assert backend().name == name
    return render(policy, x, rows, **options)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("channels", [3, 1])
def test_every_operation_in_every_backend(name, channels, monkeypatch):
    """One operation at a time, against the naive formulas and not only against the reference."""
    x = images(5, channels, 8, 8)
    policy = SimCLR(8, kernel=5, threshold=0.4)
    rows = parameters(policy, x)
    for column in ("jitter", "grayscale", "solarise", "flip"):
        rows[column] = False
    rows["top"] = rows["left"] = rows["sigma"] = rows["hue"] = 0
    rows["height"] = rows["width"] = 8
    unit = x.double().numpy() / 255

    def check(expected, **changes):
        some = rows.copy()
        for column, value in changes.items():
            some[column] = value
        got = make(name, policy, x, some, monkeypatch).double().numpy()
        for a, b in zip(got, unit, strict=True):
            assert np.abs(a - expected(b)).max() < SAME

    check(lambda p: p)
    check(lambda p: p[:, :, ::-1], flip=True)
    for number, (column, (_, formula, factors)) in enumerate(OPERATIONS.items()):
        order = [number, (number + 1) % 4, (number + 2) % 4, (number + 3) % 4]
        neutral = {"brightness": 1, "contrast": 1, "saturation": 1, "hue": 0}
        for factor in factors:
            check(
                lambda p, formula=formula, factor=factor: formula(p, factor),
                **{**neutral, "jitter": True, "order": order, column: factor},
            )
    chosen = {"brightness": 1.5, "contrast": 0.6, "saturation": 1.7, "hue": 0.13}
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):

        def chain(p, order=order):
            for number in order:
                column = list(OPERATIONS)[number]
                p = OPERATIONS[column][1](p, chosen[column])
            return p

        check(chain, jitter=True, order=order, **chosen)
    check(naive.grayscale, grayscale=True)
    check(lambda p: naive.solarise(p, 0.4), solarise=True)
    check(lambda p: naive.blur(p, 0.9, 5), sigma=0.9)
    check(
        lambda p: naive.solarise(naive.blur(naive.grayscale(p), 0.9, 5), 0.4),
        grayscale=True,
        sigma=0.9,
        solarise=True,
    )


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("size", [1, 5, 16, 21, 40])
def test_backends_make_the_same_pictures(name, size, monkeypatch):
    policy = SimCLR(size, blur=0.5, solarise=0.5, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    for antialias in (True, False):
        policy = SimCLR(size, blur=0.5, solarise=0.5, antialias=antialias)
        for height, width in ((16, 16), (33, 61), (1, 1), (3, 90)):
            x = images(24, 3, height, width)
            rows = parameters(policy, x)
            expected = reference.render(policy, x, rows)
            got = make(name, policy, x, rows, monkeypatch)
            assert got.dtype == torch.float32
            assert (got - expected).abs().max() < SAME
            whole = torch.empty(got.shape, dtype=torch.uint8)
            assert make(name, policy, x, rows, monkeypatch, out=whole) is whole
            assert (whole / 255 - expected).abs().max() < BYTE


@pytest.mark.parametrize("name", BACKENDS)
def test_normalising(name, monkeypatch):
    x = images()
    plain, mean, std = SimCLR(12), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    rows = parameters(plain, x)
    raw = make(name, plain, x, rows, monkeypatch)
    policy = SimCLR(12, mean=mean, std=std)
    got = make(name, policy, x, rows, monkeypatch)
    expected = (raw - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    assert torch.allclose(got, expected, atol=SAME)
    one, two = (torch.empty(raw.shape, dtype=torch.uint8) for _ in range(2))
    make(name, plain, x, rows, monkeypatch, out=one)
    make(name, policy, x, rows, monkeypatch, out=two)
    assert torch.equal(one, two)


@pytest.mark.parametrize("name", BACKENDS)
def test_threads_layouts_and_sizes(name, monkeypatch):
    policy, x = SimCLR(12, blur=0.5), images(11)
    rows = parameters(policy, x)
    expected = make(name, policy, x, rows, monkeypatch, threads=1)
    for threads in (2, 3, 50):
        assert torch.equal(make(name, policy, x, rows, monkeypatch, threads=threads), expected)
    last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert torch.equal(make(name, policy, last, rows, monkeypatch), expected)
    several = [images(1, height=9 + i, width=20 - i, seed=i)[0] for i in range(5)]
    monkeypatch.setenv(compiled.VARIABLE, name)
    together, drawn = policy(several, range(5))
    for i, image in enumerate(several):
        alone, row = policy(image[None], [i])
        assert torch.equal(together[i], alone[0])
        assert (row == drawn[i]).all()


@pytest.mark.parametrize("channels", [2, 4, 13])
def test_any_number_of_channels_without_colours(channels):
    """Crop, flip, brightness, contrast, blur and solarise treat each channel alike."""
    policy = SimCLR(8, saturation=0, hue=0, grayscale=0, blur=0.5, kernel=3, solarise=0.3)
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, channels, 11, 9), np.uint8))
    got, rows = policy(x, range(5))
    assert got.shape == (5, channels, 8, 8)
    same = x[:, :1].expand(-1, channels, -1, -1).contiguous()  # every channel equal: as one channel
    alone = render(policy, x[:, :1].contiguous(), rows)
    assert torch.allclose(render(policy, same, rows), alone.expand_as(got), atol=SAME)
    floats = render(policy, x.double() / 255, rows)
    assert torch.allclose(got.double(), floats, atol=SAME)
    assert policy.plain(x).shape == (5, channels, 8, 8)


def test_colours_need_rgb():
    x = torch.zeros(2, 4, 8, 8, dtype=torch.uint8)
    sentence = r"saturation=0.4, hue=0.1, grayscale=0.2 needs images in RGB; received 4 channels"
    with pytest.raises(InputError, match=sentence):
        SimCLR.large(8)(x, range(2))
    with pytest.raises(InputError, match="1 to 13 channels"):
        SimCLR.large(8)(torch.zeros(2, 14, 8, 8, dtype=torch.uint8), range(2))


def test_floats_take_the_reference_and_keep_their_precision():
    policy, x = SimCLR(12, blur=0.5), images()
    rows = parameters(policy, x)
    expected = render(policy, x, rows)
    for dtype, out in ((torch.float32, torch.float32), (torch.float64, torch.float64)):
        got = render(policy, x.to(dtype) / 255, rows)
        assert got.dtype == out
        assert torch.allclose(got.float(), expected, atol=SAME)
    half = render(policy, (x / 255).half(), rows)
    assert half.dtype == torch.float32


def test_inputs_are_left_alone():
    for x in (images(), images() / 255):
        before = x.clone()
        SimCLR(16, strength=1, blur=1.0, solarise=1.0)(x, range(len(x)))
        assert torch.equal(x, before)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_box_outside_its_picture_is_refused(name, monkeypatch):
    if name == "torch":
        pytest.skip("torch cannot read beyond a tensor")
    policy, x = SimCLR(8), images()
    rows = parameters(policy, x)
    rows["left"][2] = 12
    rows["width"][2] = 5
    with pytest.raises(InputError, match="1 of 6"):
        make(name, policy, x, rows, monkeypatch)
    with pytest.raises(InputError, match="5 rows and 6 images"):
        make(name, policy, x, rows[:5], monkeypatch)
    with pytest.raises(InputError, match=r"\(6, 3, 8, 8\).*\(6, 3, 9, 8\)"):
        render(policy, x, rows, out=torch.empty(6, 3, 9, 8))
    with pytest.raises(InputError, match="threads=0"):
        render(policy, x, rows, threads=0)


def test_an_error_in_a_thread_is_raised():
    def work(first, stop):
        if threading.current_thread() is not threading.main_thread():
            raise ValueError(f"{first} to {stop}")

    with pytest.raises(ValueError, match="5 to 10"):
        in_threads(work, 10, 2)


# ---- how the library is found ----


@needs_c
def test_the_library_is_built_once_and_kept(fresh):
    first = compiled.library()
    (path,) = fresh.iterdir()
    assert path == first.path
    assert backend().why.startswith("built by ")
    made = path.stat().st_mtime_ns
    compiled._loaded.cache_clear()
    assert compiled.library().path == path
    assert path.stat().st_mtime_ns == made
    assert fresh.stat().st_mode & 0o077 == 0


@needs_c
@pytest.mark.parametrize("damage", ["cut", "bit"])
def test_a_damaged_library_is_built_again(fresh, damage):
    path = compiled.library().path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # this process still has the old one mapped
    path.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    compiled._loaded.cache_clear()
    assert backend().name == "c"
    assert compiled.library().path.parent == fresh
    assert compiled._digest(compiled.library().path.read_bytes()) in compiled.library().path.name
    assert len(list(fresh.iterdir())) == 1


def test_no_compiler_falls_back(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert backend().name == "torch"
    assert "no C compiler was found" in backend().why
    policy, x = SimCLR(8), images()
    got, rows = policy(x, range(6))
    assert torch.equal(got, reference.render(policy, x, rows))
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(compiled.VARIABLE, "c")
    with pytest.raises(InputError, match="no C compiler was found"):
        backend()


def test_a_compiler_that_fails_falls_back(fresh, monkeypatch, tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'boom 77' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert backend().name == "torch"
    assert "cc failed: boom 77" in backend().why


@needs_c
def test_an_unwritable_cache_is_done_without(fresh, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert backend().name == "c"
    assert not compiled.library().path.is_relative_to(tmp_path)


@needs_c
def test_a_cache_that_others_may_write_to_is_not_trusted(fresh):
    fresh.mkdir()
    fresh.chmod(0o777)
    assert backend().name == "c"
    assert not list(fresh.iterdir())


def test_forcing_a_backend(fresh, monkeypatch):
    monkeypatch.setenv(compiled.VARIABLE, "torch")
    assert backend().why == "CHIARO_VIEWS=torch"
    assert compiled.library() is None
    monkeypatch.setenv(compiled.VARIABLE, "fortran")
    with pytest.raises(InputError, match="fortran"):
        backend()


@needs_c
def test_builds_at_the_same_time_do_not_disturb_each_other(fresh):
    fresh.mkdir(mode=0o700)
    command = (compiled._compiler(), *QUICK)
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(compiled._from_folder(fresh, command)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [library.sizes for library in got] == [LIBRARY.sizes] * 3
    assert all(path.suffix == ".so" for path in fresh.iterdir())
