"""Noise, groups, splits, rewrites, masks: relations, laws, and one signature for all."""

import inspect
import math

import numpy as np
import pytest
import torch

from chiaroscuro import views
from chiaroscuro.errors import InputError
from chiaroscuro.spec import parse
from chiaroscuro.views import (
    Chain,
    Directions,
    Jitter,
    LabelledContext,
    LieAction,
    Mask,
    MultiCrop,
    PatchSplit,
    Rewrites,
    RigidMotion,
    SimCLR,
    Standardise,
    TokenSplit,
    View,
    Window,
)
from chiaroscuro.views.lie import exp_action, moved

NAMES = {name: getattr(views, name) for name in views.__all__}
TURN = [[0.0, -1.0], [1.0, 0.0]]


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


PICTURES = (normal(9, 3, 12, 12).sigmoid() * 255).byte()
TOKENS = torch.arange(9 * 7).view(9, 7) % 50 + 2
TEXTS = [[f"text {i} {j}" for j in range(1 + i % 4)] for i in range(9)]
# every exported view, with a batch it takes and how many views it has
ALL = {
    "SimCLR": (SimCLR(8, strength=0.5), PICTURES),
    "Directions": (Directions(normal(2, 5), scale=(0.5, 2.0)), normal(9, 5)),
    "LieAction": (LieAction([TURN, [[1.0, 0.0], [0.0, 2.0]]], scale=0.3), normal(9, 2)),
    "RigidMotion": (RigidMotion(angle=0.3, shift=0.1, border="reflection"), PICTURES),
    "PatchSplit": (PatchSplit(patch=4, fill=7.0), PICTURES),
    "TokenSplit": (TokenSplit(mask=1, padding=0), TOKENS),
    "LabelledContext": (
        LabelledContext(PatchSplit(patch=4), classes=5),
        (PICTURES, torch.arange(9) % 5),
    ),
    "Rewrites": (Rewrites(original=0.3), TEXTS),
    "Mask": (Mask(p=0.4, span=2), normal(9, 3, 20)),
    "Standardise": (Standardise(mean=[1.0, 2.0, 3.0], std=[1.0, 2.0, 0.5]), normal(9, 3, 20)),
    "Window": (Window(share=0.6), normal(9, 3, 20)),
    "Jitter": (Jitter(noise=0.1, scale=0.2), normal(9, 3, 20)),
    "MultiCrop": (MultiCrop((2, Mask(p=0.5)), (1, Jitter(noise=0.1))), normal(9, 6)),
    "Chain": (Chain(Jitter(noise=0.1), Jitter(noise=0.1), Mask(p=0.3)), normal(9, 6)),
}


def test_every_exported_view_is_here():
    classes = {n for n, v in NAMES.items() if isinstance(v, type) and issubclass(v, View)}
    assert set(ALL) == classes - {"View"}


@pytest.mark.parametrize("name", ALL)
def test_one_signature(name):
    view, _ = ALL[name]
    got = inspect.signature(type(view).__call__).parameters
    assert list(got) == ["self", "batch", "ids", "seed", "epoch", "view"]


def equal(a, b):
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else list(a) == list(b)


def pick(batch, rows):
    if isinstance(batch, tuple):
        return tuple(pick(part, rows) for part in batch)
    return [batch[i] for i in rows] if isinstance(batch, list) else batch[rows]


@pytest.mark.parametrize("name", ALL)
def test_a_view_depends_on_names_alone(name):
    view, batch = ALL[name]
    ids = np.array([4, 8, 15, 16, 23, 42, 99, 7, 0])
    for side in (0, 1):
        whole, rows = view(batch, ids, seed=3, epoch=1, view=side)
        assert len(rows) == 9
        assert isinstance(rows, np.ndarray)
        assert rows.dtype.names or name == "Standardise"  # which draws nothing
        for part in ([0], [8, 3, 1]):
            got, some = view(pick(batch, part), ids[part], seed=3, epoch=1, view=side)
            if name == "LieAction":  # matrix products round differently in other batches
                assert torch.allclose(got, pick(whole, part), rtol=1e-6)
            else:
                assert equal(got, pick(whole, part))
            assert (some == rows[part]).all()
    if name == "Standardise":
        return
    changed = view(batch, ids, seed=4, epoch=1, view=0)[1]
    assert (changed != view(batch, ids, seed=3, epoch=1, view=0)[1]).any()


@pytest.mark.parametrize("name", ALL)
def test_notation_round_trip(name):
    view, batch = ALL[name]
    again = parse(repr(view), NAMES)
    assert again == view
    assert hash(again) == hash(view)
    assert equal(again(batch, range(9))[0], view(batch, range(9))[0])


@pytest.mark.parametrize("name", ALL)
def test_the_ids_must_match(name):
    view, batch = ALL[name]
    with pytest.raises(InputError, match="9 samples and 8 ids"):
        view(batch, range(8))


# ---- directions and groups ----


def test_directions_span_the_difference():
    V = normal(2, 6, seed=1).double()
    x = normal(50, 6).double()
    moved_x, rows = Directions(V, scale=[0.5, 3.0])(x, range(50))
    assert torch.allclose(moved_x - x, torch.from_numpy(rows["eps"]).double() @ V, atol=1e-12)
    _, many = Directions(V, scale=[0.5, 3.0])(normal(20_000, 6), range(20_000))
    assert np.allclose(many["eps"].std(axis=0), [0.5, 3.0], rtol=0.05)
    _, flat = Directions(V, scale=2.0, law="uniform")(normal(5000, 6), range(5000))
    assert np.abs(flat["eps"]).max() <= 2.0
    assert np.allclose(flat["eps"].std(axis=0), 2 / np.sqrt(3), rtol=0.05)


def test_directions_of_pictures():
    x = torch.zeros(3, 1, 2, 2)
    got, rows = Directions([1.0, 0.0, 0.0, 2.0], scale=1.0)(x, range(3))
    assert torch.equal(got[:, 0, 1, 1], 2 * torch.from_numpy(rows["eps"][:, 0]))


def test_a_nilpotent_generator_is_a_direction():
    v, eps = normal(4, seed=2).double(), normal(6, 1, seed=3).double()
    x = torch.cat([normal(6, 4).double(), torch.ones(6, 1).double()], dim=1)
    G = torch.zeros(1, 5, 5).double()
    G[0, :4, 4] = v
    assert torch.allclose(exp_action(G, eps, x)[:, :4], x[:, :4] + eps * v, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_action_equals_the_matrix_exponential(dtype):
    G, eps = normal(3, 5, 5, seed=4, dtype=dtype), normal(8, 3, seed=5, dtype=dtype)
    x = normal(8, 5, dtype=dtype)
    whole = torch.linalg.matrix_exp(torch.einsum("nk,kab->nab", eps, G).double())
    expected = (whole @ x.double()[:, :, None])[:, :, 0]
    error = (exp_action(G, eps, x).double() - expected).abs().max() / expected.abs().max()
    assert error < (1e-13 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize(("k", "room"), [(3, 1), (3, 60), (9, 60)])
def test_every_way_of_the_action_is_the_same(k, room, monkeypatch):
    """A matrix of each row, some rows at a time; or, for few generators, none."""
    G = normal(k, 5, 5, seed=4, dtype=torch.float64) / 3
    eps, x = normal(8, k, seed=5, dtype=torch.float64), normal(8, 5, dtype=torch.float64)
    expected = exp_action(G, eps, x)
    monkeypatch.setattr("chiaroscuro.views.lie._ROOM", room)
    assert (exp_action(G, eps, x) - expected).abs().max() < 1e-13 * expected.abs().max()


def test_generators_of_planes_of_their_own_take_the_steps_of_the_largest(monkeypatch):
    """Their norms are not added up: exp of 40 turns costs what exp of one does."""
    G = torch.zeros(40, 80, 80, dtype=torch.float64)
    for plane in range(40):
        G[plane, 2 * plane, 2 * plane + 1], G[plane, 2 * plane + 1, 2 * plane] = -1.0, 1.0
    eps = torch.full((2, 40), 2.5, dtype=torch.float64)
    x = normal(2, 80, dtype=torch.float64)
    counted = []
    product = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda *ab: counted.append(1) or product(*ab))
    got = exp_action(G, eps, x)
    assert len(counted) == 3 * 19
    cos, sin = math.cos(2.5), math.sin(2.5)
    a, b = x[:, ::2], x[:, 1::2]
    assert torch.allclose(got[:, ::2], cos * a - sin * b, atol=1e-13)
    assert torch.allclose(got[:, 1::2], sin * a + cos * b, atol=1e-13)


def test_relations_of_the_action():
    G = normal(6, 6, seed=6).double()
    x = normal(5, 6).double()
    one, two = (torch.full((5, 1), e, dtype=torch.float64) for e in (0.4, 1.3))
    both = exp_action(G[None], two, exp_action(G[None], one, x))
    assert torch.allclose(both, exp_action(G[None], one + two, x), atol=1e-10)
    got, _ = LieAction(G - G.T, scale=2.0)(x, range(5))
    assert torch.allclose(got.norm(dim=1), x.norm(dim=1), atol=1e-12)
    small, rows = LieAction(G, scale=1e-4)(x, range(5))
    linear = x + torch.from_numpy(rows["eps"]).double() * (x @ G.T)
    assert (small - linear).abs().max() < 1e-6
    half, _ = LieAction(TURN, scale=1.0)(normal(4, 2).half(), range(4))
    assert half.dtype == torch.float16
    assert LieAction(TURN, scale=1.0)(torch.zeros(0, 2), [])[0].shape == (0, 2)


def motion(n, angle=0.0, down=0.0, right=0.0):
    columns = {"angle": angle, "down": down, "right": right}
    return views.view.record(n, **{k: np.full(n, v, np.float32) for k, v in columns.items()})


def test_relations_of_rigid_motions():
    x = normal(2, 3, 9, 9).double()
    for turns in range(4):
        got = moved(x, motion(2, angle=turns * math.pi / 2), "zeros")
        assert torch.allclose(got, torch.rot90(x, turns, (2, 3)), atol=1e-5)
    got = moved(x, motion(2, down=2 / 9, right=-1 / 9), "zeros")
    assert torch.allclose(got[:, :, 2:, :8], x[:, :, :-2, 1:], atol=1e-5)
    assert got[:, :, :2].abs().max() < 1e-5
    wide = normal(1, 1, 6, 10).double()
    half = moved(wide, motion(1, angle=math.pi), "zeros")
    assert torch.allclose(half, wide.flip(2, 3), atol=1e-5)
    # a turn in a frame that is not square keeps distances: the bright spot stays 2 pixels away
    spot = torch.zeros(1, 1, 7, 13)
    spot[0, 0, 3, 8] = 1
    turned = moved(spot, motion(1, angle=math.pi / 2), "zeros")
    assert turned[0, 0].argmax() == 1 * 13 + 6  # two above the centre: anticlockwise
    got, rows = RigidMotion(angle=0.5, shift=0.2)(PICTURES, range(9))
    assert got.dtype == torch.float32
    assert np.abs(rows["angle"]).max() <= 0.5
    assert np.abs(rows["down"]).max() <= 0.2
    still, _ = RigidMotion(0.0, 0.0)(PICTURES, range(9))
    assert torch.allclose(still, PICTURES / 255, atol=1e-5)


# ---- symbols and contexts ----


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_patch_and_its_context_make_the_picture(grid, dtype):
    x, split = PICTURES.to(dtype), PatchSplit(patch=5, grid=grid, fill=3)
    symbol, where = split(x, range(9), seed=1, view=0)
    context, same = split(x, range(9), seed=1, view=1)
    assert (where == same).all()
    assert symbol.shape == (9, 3, 5, 5)
    assert symbol.dtype == context.dtype == dtype
    for i, (top, left) in enumerate(where.tolist()):
        assert (context[i, :, top : top + 5, left : left + 5] == 3).all()
        context[i, :, top : top + 5, left : left + 5] = symbol[i]
    assert torch.equal(context, x)


def test_every_patch_has_its_turn():
    x = torch.zeros(4000, 1, 6, 9)
    _, where = PatchSplit(patch=3)(x, range(4000))
    places, counts = np.unique(where, return_counts=True)
    assert sorted(places.tolist()) == [(t, l) for t in (0, 3) for l in (0, 3, 6)]
    assert np.abs(counts - 4000 / 6).max() < 5 * math.sqrt(4000 / 6)
    _, anywhere = PatchSplit(patch=3, grid=False)(x, range(4000))
    assert set(anywhere["top"]) == set(range(4))
    assert set(anywhere["left"]) == set(range(7))


def test_a_resized_symbol_and_its_context_are_alike():
    symbol, _ = PatchSplit(patch=4, resize=12)(PICTURES, range(9), view=0)
    context, _ = PatchSplit(patch=4, resize=12)(PICTURES, range(9), view=1)
    assert symbol.shape == context.shape
    assert symbol.dtype == context.dtype == torch.float32
    assert max(symbol.max(), context.max()) <= 1


def test_a_token_and_its_context_make_the_sequence():
    x = TOKENS.clone()
    x[:, 5:] = 0
    x[3, 1:] = 0
    split = TokenSplit(mask=1, padding=0)
    symbol, where = split(x, range(9), view=0)
    context, _ = split(x, range(9), view=1)
    assert (symbol != 0).all()
    assert ((context == 1).sum(dim=1) == 1).all()
    rows = torch.arange(9)
    context[rows, torch.from_numpy(where["position"])] = symbol
    assert torch.equal(context, x)
    many = TOKENS[:1].expand(3000, 7)
    _, anywhere = TokenSplit(mask=1)(many, range(3000))
    assert np.abs(np.bincount(anywhere["position"]) - 3000 / 7).max() < 5 * math.sqrt(3000 / 7)


# ---- texts ----


def test_rewrites_choose_among_a_samples_texts():
    got, rows = Rewrites()(TEXTS, range(9))
    for i, text in enumerate(got):
        assert text == TEXTS[i][rows["choice"][i]]
    assert rows["count"].tolist() == [len(texts) for texts in TEXTS]
    n = 4000
    texts = [["a", "b", "c", "d"]] * n
    for original, rate in ((None, 0.25), (0.5, 0.5), (1.0, 1.0), (0.0, 0.0)):
        choice = Rewrites(original)(texts, range(n))[1]["choice"]
        shares = np.bincount(choice, minlength=4) / n
        assert abs(shares[0] - rate) < 5 * math.sqrt(0.25 / n)
        assert np.abs(shares[1:] - (1 - rate) / 3).max() < 5 * math.sqrt(0.25 / n)
    assert Rewrites(0.0)([["only"]], [0])[0] == ["only"]


def test_rewrites_of_tokens():
    tokens = torch.arange(24).view(4, 3, 2)
    got, rows = Rewrites()(tokens, range(4))
    for i, j in enumerate(rows["choice"]):
        assert torch.equal(got[i], tokens[i, j])
    assert (Rewrites()(tokens.numpy(), range(4))[0] == got.numpy()).all()


# ---- arrays and series ----


@pytest.mark.parametrize("span", [1, 2, 5])
def test_every_place_is_hidden_with_probability_p(span):
    n, length = 8000, 9
    x = torch.ones(n, 2, length)
    got, rows = Mask(p=0.3, span=span, fill=-5.0)(x, range(n))
    hidden = rows["hidden"]
    assert np.abs(hidden.mean(axis=0) - 0.3).max() < 5 * math.sqrt(0.21 / n)
    places = torch.from_numpy(hidden)[:, None].expand_as(got)
    assert (got[places] == -5).all()
    assert (got[~places] == 1).all()
    if span > 1:  # inside, what is hidden comes in runs of at least the span
        middle = hidden[:, span : length - span + 1]
        for row in middle[:200]:
            runs = "".join("x" if h else " " for h in row).strip().split()
            assert all(len(run) >= span or row[0] or row[-1] for run in runs)


def test_extremes_of_masks_and_jitter():
    x = normal(5, 7)
    assert torch.equal(Mask(p=0.0)(x, range(5))[0], x)
    assert (Mask(p=1.0, span=3)(x, range(5))[0] == 0).all()
    assert torch.equal(Jitter(noise=0.0)(x, range(5))[0], x)
    tokens, rows = Mask(p=0.5, fill=1)(TOKENS, range(9))
    assert torch.equal(tokens, TOKENS.masked_fill(torch.from_numpy(rows["hidden"]), 1))


def test_jitter_has_its_moments():
    n = 5000
    x = torch.ones(n, 2, 4)
    got, rows = Jitter(noise=0.5, scale=0.2)(x, range(n))
    rest = got.numpy() - rows["factor"][:, :, None]
    assert rows["factor"].shape == (n, 2)
    assert abs(rows["factor"].std() - 0.2) < 0.01
    assert abs(rest.std() - 0.5) < 0.01
    assert np.abs(np.corrcoef(rest.reshape(n, -1).T) - np.eye(8)).max() < 5 / math.sqrt(n)
    axes, _ = Jitter(noise=(0.1, 0.0, 3.0))(torch.zeros(n, 3), range(n))
    along, _ = Directions(np.eye(3), scale=1.0)(torch.zeros(n, 3), range(n))
    assert np.allclose(axes.std(dim=0), [0.1, 0.0, 3.0], rtol=0.06)
    assert np.allclose(along.std(dim=0), [1.0] * 3, rtol=0.06)


def test_members_of_a_chain_are_independent():
    x = torch.zeros(4000, 1)
    _, rows = Chain(Mask(p=0.5), Mask(p=0.5))(x, range(4000))
    first, second = (rows[place]["hidden"][:, 0] for place in ("0", "1"))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(4000)
    _, longer = Chain(Mask(p=0.5), Mask(p=0.5), Jitter(noise=1.0))(x, range(4000))
    assert (longer["0"] == rows["0"]).all()
    assert (longer["1"] == rows["1"]).all()


# ---- sentences ----


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda: Directions([[1.0]], scale=0), "scale=0"),
        (lambda: Directions([[1.0]], scale=(1.0, 2.0)), "2.0"),
        (lambda: Directions([[float("nan")]], scale=1.0), r"\(1, 1\)"),
        (lambda: Directions([[1.0]], scale=1.0, law="cauchy"), "cauchy"),
        (lambda: Directions([[1.0, 2.0]], scale=1.0)(normal(2, 3), [0, 1]), r"\(2, 3\)"),
        (lambda: LieAction([[1.0, 2.0]], scale=1.0), r"\(1, 1, 2\)"),
        (lambda: LieAction(TURN, scale=1.0)(normal(2, 3), [0, 1]), r"\(2, 3\)"),
        (lambda: LieAction(TURN, scale=1.0)(torch.ones(2, 2).long(), [0, 1]), "int64"),
        (lambda: RigidMotion(angle=-1.0, shift=0.0), "-1.0"),
        (lambda: RigidMotion(0.0, 0.0, border="wrap"), "wrap"),
        (lambda: RigidMotion(0.0, 0.0)(normal(2, 3), [0, 1]), r"\(2, 3\)"),
        (lambda: PatchSplit(0), "patch=0"),
        (lambda: PatchSplit(13)(PICTURES, range(9)), "13"),
        (lambda: PatchSplit(3)(PICTURES, range(9), view=2), "2"),
        (lambda: TokenSplit(1)(normal(2, 3), [0, 1]), "float32"),
        (lambda: TokenSplit(1, padding=0)(torch.zeros(2, 3).long(), [0, 1]), "2 of 2"),
        (lambda: TokenSplit(1)(TOKENS, range(9), view=3), "3"),
        (lambda: Rewrites(1.5), "1.5"),
        (lambda: Rewrites()([["a"], []], [0, 1]), "sample 1 of 2"),
        (lambda: Rewrites()(["text"], [0]), "sample 0 of 1"),
        (lambda: Mask(p=1.5), "1.5"),
        (lambda: Mask(p=0.5, span=0), "span=0"),
        (lambda: Mask(p=0.5)(torch.ones(3), range(3)), r"\(3,\)"),
        (lambda: Jitter(noise=-1.0), "-1.0"),
        (lambda: Jitter(noise=(1.0, 2.0))(normal(2, 3), [0, 1]), "2 noises"),
        (lambda: Jitter(noise=1.0)(TOKENS, range(9)), "int64"),
        (lambda: Chain(), r"received \(\)"),
        (lambda: Mask(p=0.5)([1, 2], [0, 1]), "list"),
    ],
)
def test_sentences(call, number):
    with pytest.raises(InputError, match=number):
        call()


def test_plain_is_what_all_samples_share():
    policy = SimCLR(size=6, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert Jitter(noise=1.0).plain(TOKENS) is TOKENS
    chain = Chain(policy, Jitter(noise=1.0))
    torch.testing.assert_close(chain.plain(PICTURES), policy.plain(PICTURES))
    assert chain.plain(PICTURES).shape == (9, 3, 6, 6)


# ---- scaling and windows ----


def test_standardise_makes_columns_and_channels_standard():
    table, series = 3 + 2 * normal(500, 4), 5 * normal(50, 2, 30) - 1
    for x, axes in ((table, (0,)), (series, (0, 2))):
        view = Standardise(mean=x.mean(axes), std=x.std(axes, correction=0))
        scaled, _ = view(x, ids=range(len(x)))
        assert torch.allclose(scaled.mean(axes), torch.zeros(x.shape[1]), atol=1e-5)
        assert torch.allclose(scaled.std(axes, correction=0), torch.ones(x.shape[1]), atol=1e-5)
        assert torch.equal(view.plain(x), scaled)  # nothing random: embedding scales alike
    assert torch.equal(Standardise(0.0, 1.0).plain(table), table)


def test_a_window_is_a_piece_of_the_series_and_every_place_is_drawn():
    x = torch.arange(10.0).repeat(2000, 3, 1)
    cut, parameters = Window(share=0.7)(x, ids=range(2000))
    assert cut.shape == (2000, 3, 7)
    assert torch.equal(cut[:, 0, 0], torch.as_tensor(parameters["start"]).float())
    assert torch.equal(cut.diff(dim=-1), torch.ones(2000, 3, 6))
    assert np.bincount(parameters["start"]).min() > 400  # of 500 each
    assert torch.equal(Window(share=1.0)(x, ids=range(2000))[0], x)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Standardise(0.0, [1.0, 0.0]), "std > 0.*0.0"),
        (lambda: Standardise([1.0], [1.0]).plain(normal(2, 3)), "1 columns.*\\(2, 3\\)"),
        (lambda: Standardise(0.0, 1.0).plain(TOKENS), "int64"),
        (lambda: Window(share=0.0), "share=0.0"),
        (lambda: Window()(normal(3), ids=range(3)), "\\(3,\\)"),
    ],
)
def test_scaling_and_windows_refuse(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
