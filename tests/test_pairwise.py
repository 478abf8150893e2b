"""The tiles equal the meaning, in value and gradient: every kernel, every choice, every path."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import chiaroscuro as cs
import chiaroscuro.pairwise.logsumexp as tiles
from chiaroscuro.pairwise import Layout, dense, terms
from oracles import naive
from tolerances import close
from zoo import ANCHORS, BATCH_NEGATIVES, KERNELS, NEGATIVES, D, double, pair

KEPT = {"TILE_KEPT": 3, "KEPT": 1 << 30, "SMALL": 0}
RECOMPUTED = {"TILE": 3, "TILE_OF_DIFFERENCES": 2, "KEPT": 0, "SMALL": 0}
PLAIN = {"OVERFLOW": 1e9, "UNDERFLOW": 1e9}
TRACKED = {"OVERFLOW": -1.0, "UNDERFLOW": -1e9}
PATHS = {
    "kept": KEPT | PLAIN,
    "kept, maximum tracked": KEPT | TRACKED,
    "recomputed": RECOMPUTED | PLAIN,
    "recomputed, maximum tracked": RECOMPUTED | TRACKED,
}
DOUBLES = {name: double(kernel) for name, kernel in KERNELS.items()}
every_kernel = pytest.mark.parametrize("name", KERNELS, ids=str)
N, QUEUE = 4, 3
CHOICES = [(negatives, anchors, "none") for negatives in BATCH_NEGATIVES for anchors in ANCHORS]
CHOICES += [
    ("AllButSelf", "both", "constant"),
    ("AllButPair", "both", "trained"),
    ("OtherView", "first", "trained"),
    ("SameView", "first", "constant"),
    ("OnlyPositive", "both", "trained"),
    ("OnlyPositive", "first", "constant"),
]


def turn(name, path=""):
    """A third of the choices: another for the next kernel and for the next path.

    Over all kernels and paths, every two of kernel, path and choice meet.
    """
    first = list(KERNELS).index(name) + (list(PATHS).index(path) if path else 0)
    return CHOICES[first % 3 :: 3]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Many tiny ragged tiles, kept or recomputed, with and without a running maximum."""
    take(monkeypatch, request.param)
    return request.param


def take(monkeypatch, path):
    for constant, value in PATHS[path].items():
        monkeypatch.setattr(terms if hasattr(terms, constant) else tiles, constant, value)


def inputs(queue, **options):
    """Two views and perhaps a queue: none, a constant one, or one that is trained too."""
    z1, z2, q = pair(N, queue=QUEUE, **options)
    return {"none": (z1, z2), "constant": (z1, z2, q.detach()), "trained": (z1, z2, q)}[queue]


def trained(kernel, views):
    return [x for x in (*views, *kernel.parameters()) if x.requires_grad]


@cache
def expected(name, negatives, anchors, queue):
    """Value and gradients of the loop over explicit candidates."""
    kernel, views = DOUBLES[name], inputs(queue)
    value = naive.infonce(kernel, negatives, anchors, *views)
    return [value.detach(), *naive.gradients(value, *trained(kernel, views))]


def evaluated(kernel, negatives, anchors, views):
    objective = cs.InfoNCE(kernel, NEGATIVES[negatives], anchors)
    value = objective(*views[:2], queue=views[2] if len(views) > 2 else None)
    return [value.detach(), *naive.gradients(value, *trained(kernel, views))]


def all_close(found, right, what="", tolerance=None):
    for k, (a, b) in enumerate(zip(found, right, strict=True)):
        close(a, b, tolerance, what=f"{what} {'value' if k == 0 else f'gradient {k}'}")


# ---- the meaning ----


@every_kernel
def test_the_dense_meaning_equals_the_loop(name):
    """kernel.log, plus log weights, log-sum-exp, minus the partner's entry: the definition."""
    kernel = DOUBLES[name]
    for negatives, anchors, queue in CHOICES:
        views = inputs(queue)
        z = torch.cat(views[:2])
        log_k = kernel.log(z, z)
        attract = log_k[torch.arange(2 * N), torch.arange(2 * N).roll(N)]
        candidates = [log_k + NEGATIVES[negatives].log_weights(N, torch.float64)]
        candidates += [kernel.log(z, q) for q in views[2:]]
        repel = torch.logsumexp(torch.cat(candidates, dim=1), dim=1)
        value = (repel - attract)[: 2 * N if anchors == "both" else N].mean()
        found = [value, *naive.gradients(value, *trained(kernel, views))]
        all_close(found, expected(name, negatives, anchors, queue), f"{negatives} {anchors}")


@every_kernel
def test_the_tiles_equal_the_loop(name, path):
    for negatives, anchors, queue in turn(name, path):
        found = evaluated(DOUBLES[name], negatives, anchors, inputs(queue))
        right = expected(name, negatives, anchors, queue)
        all_close(found, right, f"{negatives} {anchors} queue {queue}:")


@pytest.mark.parametrize("limits", [PLAIN, TRACKED], ids=["plain", "maximum tracked"])
@every_kernel
def test_the_dense_path_equals_the_loop(name, limits, monkeypatch):
    monkeypatch.setattr(dense, "ROWS", (0, 1 << 30))
    for constant, value in limits.items():
        monkeypatch.setattr(terms, constant, value)
    for negatives in ("AllButSelf", "AllButPair"):
        found = evaluated(DOUBLES[name], negatives, "both", inputs("none"))
        all_close(found, expected(name, negatives, "both", "none"), f"{negatives}:")


@every_kernel
def test_as_it_chooses_in_float32(name):
    """All stays float32, gradients of temperatures too, and is as right as that allows."""
    kernel = KERNELS[name]
    views = [z.detach().float().requires_grad_() for z in inputs("none")]
    found = evaluated(kernel, "AllButSelf", "both", views)
    assert {x.dtype for x in found} == {torch.float32}
    exact = [z.detach().double().requires_grad_() for z in views]
    value = naive.infonce(kernel, "AllButSelf", "both", *exact)
    all_close(found, [value, *naive.gradients(value, *trained(kernel, exact))])


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_log_weights_are_the_lists_of_candidates(negatives):
    weights = NEGATIVES[negatives].log_weights(N)
    for i in range(2 * N):
        kept = (weights[i] == 0).nonzero().flatten().tolist()
        assert kept == sorted(naive.candidates(negatives, i, N))
        assert len(kept) == NEGATIVES[negatives].count(N)
    assert set(weights.unique().tolist()) == {-torch.inf, 0.0}


# ---- tiles ----


@st.composite
def layouts(draw):
    n = draw(st.integers(1, 9))
    start = draw(st.integers(0, n))
    whole = draw(st.booleans())
    return Layout(
        n=n,
        views=draw(st.sampled_from([1, 2])),
        queue=draw(st.integers(0, 5)),
        own_view=draw(st.booleans()),
        other_view=draw(st.booleans()),
        positive=draw(st.booleans()),
        both=draw(st.booleans()),
        window=(0, n) if whole else (start, draw(st.integers(start, n))),
    )


@given(layouts(), st.integers(1, 20))
def test_tiles_visit_each_anchor_and_candidate_exactly_once(layout, size):
    """Left out: self and partner. A pair visited twice would count twice, in value and gradient."""
    visits = torch.zeros(layout.rows, layout.rows, dtype=torch.int64)
    for tile in layout.tiles(size):
        assert max(tile.shape) <= size
        block = torch.ones(tile.shape, dtype=torch.int64)
        for offset in tile.drop:
            block.diagonal(offset).fill_(0)
        visits[tile.i, tile.j] += block
        if tile.columns:
            visits[tile.j, tile.i] += block.T
        assert not (tile.columns and tile.mirror)
        assert tile.mirror <= (tile.i == tile.j)
    n, right = layout.n, torch.zeros_like(visits)
    for view in range(layout.views if layout.both else 1):
        for sample in range(*layout.window):
            for j in range(layout.rows):
                queued = j >= n * layout.views
                own = j // n == view
                allowed = layout.own_view if own else layout.other_view
                right[view * n + sample, j] = queued or (allowed and j % n != sample)
    assert torch.equal(visits, right)


# ---- windows ----


@pytest.mark.parametrize("negatives", BATCH_NEGATIVES)
@pytest.mark.parametrize("cuts", [(0, 2, 4), (0, 1, 1, 3, 4)], ids=str)
def test_windows_add_up_to_the_whole(negatives, cuts, path):
    """Each rank takes its own anchors against everyone: values and gradients must add up."""
    for name, anchors, queue in product(
        (repr(cs.Cosine(tau=0.5)), repr(KERNELS[list(KERNELS)[-1]])), ANCHORS, ("none", "trained")
    ):
        kernel, views = DOUBLES[name], inputs(queue)
        objective = cs.InfoNCE(kernel, NEGATIVES[negatives], anchors)
        q = views[2] if len(views) > 2 else None
        total = 0.0
        for window in pairwise(cuts):
            value = objective(*views[:2], queue=q, window=window)
            terms = objective.terms(*views[:2], queue=q, window=window)
            close(terms["repel"] - terms["attract"], value, what="terms of a window")
            total = total + value
        found = [total.detach(), *naive.gradients(total, *trained(kernel, views))]
        all_close(found, expected(name, negatives, anchors, queue), f"{name} {anchors} {queue}")


# ---- differentiated twice, and again ----


@every_kernel
def test_differentiating_twice(name):
    """The backward pass is written by hand; its own gradient must be right as well."""
    kernel = DOUBLES[name]
    z1, z2, q = pair(3, queue=2)
    taus = list(kernel.parameters())
    objective = cs.InfoNCE(kernel, cs.AllButSelf())
    f = lambda z1, z2, q, *_: objective(z1, z2, queue=q)
    assert torch.autograd.gradcheck(f, (z1, z2, q, *taus), fast_mode=True)
    assert torch.autograd.gradgradcheck(f, (z1, z2, q, *taus), fast_mode=True)


@every_kernel
def test_the_first_gradient_is_the_same_with_a_graph(name):
    """`create_graph=True` takes another road, which `gradgradcheck` compares only with itself."""
    kernel = DOUBLES[name]
    for negatives, anchors, queue in turn(name):
        views = inputs(queue)
        objective = cs.InfoNCE(kernel, NEGATIVES[negatives], anchors)
        wanted = trained(kernel, views)
        q = views[2] if len(views) > 2 else None
        value = objective(*views[:2], queue=q, window=(1, 3))
        plain = torch.autograd.grad(value, wanted, retain_graph=True)
        graph = torch.autograd.grad(value, wanted, create_graph=True)
        all_close(graph, plain, f"{negatives} {anchors} {queue}: gradient, not")


@every_kernel
def test_backward_twice(name, monkeypatch):
    """What was kept is used up by the first; the second must not find leftovers."""
    take(monkeypatch, "kept")
    kernel, views = DOUBLES[name], inputs("trained")
    value = cs.InfoNCE(kernel)(*views[:2], queue=views[2])
    first = torch.autograd.grad(value, trained(kernel, views), retain_graph=True)
    second = torch.autograd.grad(value, trained(kernel, views))
    all_close(second, first)


def test_a_scaled_loss_has_scaled_gradients(path):
    """Loss scaling, and the loss inside a sum."""
    views = inputs("none")
    objective = cs.InfoNCE(cs.Gaussian(0.5))
    plain = naive.gradients(objective(*views), *views)
    all_close(naive.gradients(-3 * objective(*views), *views), [-3 * g for g in plain])


def test_only_one_view_wants_a_gradient(path):
    z1, z2, q = pair(N, queue=QUEUE)
    right = expected(repr(cs.Gaussian(tau=0.5)), "AllButSelf", "both", "trained")
    for k, z in enumerate((z1, z2, q)):
        views = [x if x is z else x.detach() for x in (z1, z2, q)]
        found = evaluated(cs.Gaussian(0.5), "AllButSelf", "both", views)
        all_close(found, [right[0], right[1 + k]])


# ---- difficult batches ----


def difficult(kind, n=12):
    g = torch.Generator().manual_seed(3)
    z = torch.randn(2 * n, D, generator=g, dtype=torch.float64)
    if kind == "duplicates":
        z = z[torch.arange(2 * n) % 5]
    elif kind == "collapsed":
        z = z[:1].repeat(2 * n, 1)
    elif kind == "collapsed at zero":
        z = torch.zeros(2 * n, D, dtype=torch.float64)
    elif kind == "near and far":
        centres = 10 * z[:3]
        near = centres[torch.arange(2 * n) % 3] + 1e-4 * z
        z = torch.where((torch.arange(2 * n) % 4 == 0)[:, None], centres[0], near)
    elif kind == "far from the origin":
        z = 1e3 + 0.1 * z
    return z.float()[:n].requires_grad_(), z.float()[n:].requires_grad_()


KINDS = ("duplicates", "collapsed", "collapsed at zero", "near and far", "far from the origin")
DIFFICULT = {
    "Gaussian": cs.Gaussian(0.5), "Laplace": cs.Laplace(0.5), "gamma .5": cs.Exponential(0.5, 0.5),
    "gamma .1": cs.Exponential(0.1, 0.5), "gamma 3": cs.Exponential(3, 2.0),
    "p .3": cs.Lp(0.3, 1.0), "p 1": cs.Lp(1, 1.0), "p 3": cs.Lp(3, 1.0), "Cosine": cs.Cosine(0.1),
    "Sum": cs.Sum(cs.Gaussian(0.5), cs.Laplace(0.5), cs.Exponential(0.5, 1.0)),
    "Concat": cs.Concat(cs.Laplace(0.5), cs.Gaussian([0.5, 1.0])),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", DIFFICULT.values(), ids=DIFFICULT)
def test_difficult_batches_in_float32(kernel, kind, path):
    """|a|^2 + |b|^2 - 2 a.b loses near pairs; powers of the distance 0 have no slope."""
    z1, z2 = difficult(kind)
    value = cs.InfoNCE(kernel)(z1, z2)
    found = [value.detach(), *naive.gradients(value, z1, z2)]
    all_close(found, naive.infonce_blocks(kernel, "AllButSelf", z1.detach(), z2.detach()), kind)


@pytest.mark.parametrize("size", [1e2, 1e3, 1e4])
@pytest.mark.parametrize("far", ["one row", "all rows"])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_pull_of_far_points_is_bounded(gamma, far, size):
    """Each anchor's weights sum to 1, so no gradient exceeds the steepest slope of log k.

    Logits of far points are so large that float32 rounds them by whole numbers; k_ij and k_ji
    rounded differently, or a sum rounded on its own, give weights of anything up to infinity.
    """
    kernel = cs.Exponential(gamma, tau=2.0)
    for seed in range(8):
        z1, z2 = pair(12, seed=seed)[0].detach().float(), pair(12, seed=99)[0].detach().float()
        z1[7 if far == "one row" else slice(None)] *= size
        z2 *= 1 if far == "one row" else size
        views = z1.requires_grad_(), z2.requires_grad_()
        farthest = 2 * float(torch.cat(views).detach().norm(dim=1).max())
        steepest = gamma * farthest ** (gamma - 1) / 2.0
        for g in naive.gradients(cs.InfoNCE(kernel)(*views), *views):
            assert g.isfinite().all()
            assert float(g.norm(dim=1).max()) <= 4 * steepest


@pytest.mark.parametrize("size", [1e2, 1e3, 1e4])
@pytest.mark.parametrize(
    "kernel", [cs.Dot(1.0), cs.Gaussian(0.5), cs.Exponential(3, 2.0)], ids=repr
)
def test_a_candidate_far_ahead_has_weight_1(kernel, size):
    """However coarsely its logit is rounded, and from whichever side the pair is looked at."""
    for seed in range(8):
        z1, z2 = (size * pair(12, seed=s)[0].detach().float() for s in (seed, 99))
        views = z1.requires_grad_(), z2.requires_grad_()
        found = naive.gradients(cs.InfoNCE(kernel)(*views), *views)
        right = naive.infonce_blocks(kernel, "AllButSelf", z1.detach(), z2.detach())[1:]
        all_close(found, right)


@pytest.mark.parametrize("tau", [1e-4, 1e-2])
@pytest.mark.parametrize("negatives", BATCH_NEGATIVES)
def test_a_maximum_that_moves_from_tile_to_tile(tau, negatives, monkeypatch):
    """Logits of size 1/tau overflow unless each tile's maximum rescales what came before."""
    take(monkeypatch, "recomputed, maximum tracked")
    for order in (1, -1):
        z1, z2 = pair(9)
        rank = z1.detach()[:, 0].argsort(descending=order < 0)
        z1, z2 = z1[rank], z2[rank]
        value = cs.InfoNCE(cs.Gaussian(tau), NEGATIVES[negatives])(z1, z2)
        close(value, naive.infonce(cs.Gaussian(tau), negatives, "both", z1, z2), 1e-12)


# ---- shapes and strides ----


@pytest.mark.parametrize("negatives", ["AllButSelf", "OtherView", "SameView"])
def test_one_pair_has_loss_0(negatives, path):
    """The positive is the only candidate: nothing to tell apart, nothing to learn."""
    for kernel in KERNELS.values():
        z1, z2 = pair(1, dtype=torch.float32)
        value = cs.InfoNCE(kernel, NEGATIVES[negatives])(z1, z2)
        found = [value.detach(), *naive.gradients(value, z1, z2)]
        all_close(
            found, [torch.zeros(()), torch.zeros(1, D), torch.zeros(1, D)], repr(kernel), 1e-6
        )


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_one_pair_and_a_queue(negatives, path):
    for name, kernel in list(DOUBLES.items())[::4]:
        z1, z2, q = pair(1, queue=3)
        value = naive.infonce(kernel, negatives, "both", z1, z2, q)
        right = [value, *naive.gradients(value, z1, z2, q)]
        value = cs.InfoNCE(kernel, NEGATIVES[negatives])(z1, z2, queue=q)
        all_close([value, *naive.gradients(value, z1, z2, q)], right, name)


def test_an_empty_queue_is_none(path):
    z1, z2 = pair(N)
    objective = cs.InfoNCE()
    assert torch.equal(objective(z1, z2, queue=torch.zeros(0, D).double()), objective(z1, z2))


@pytest.mark.parametrize("name", list(KERNELS)[::4])
def test_strides_do_not_matter(name, path):
    """Transposed, strided and expanded inputs hold the same numbers."""
    kernel, (z1, z2) = DOUBLES[name], pair(N)
    strided = torch.stack([z2, z2], dim=1).detach()[:, 1].requires_grad_()
    transposed = z1.detach().T.contiguous().T.requires_grad_()
    found = evaluated(kernel, "AllButSelf", "both", (transposed, strided))
    all_close(found, expected(name, "AllButSelf", "both", "none"))


def test_expanded_inputs(path):
    """One row expanded to a batch shares its memory: gradients add up in it."""
    row, (z1, _) = pair(1)[0], pair(N, seed=1)
    for kernel in (cs.Gaussian(0.5), cs.Laplace(0.5), cs.Cosine(0.5), cs.Lp(1, 1.0)):
        value = cs.InfoNCE(kernel)(z1, row.expand(N, D))
        right = naive.infonce(kernel, "AllButSelf", "both", z1, row.expand(N, D))
        all_close(
            [value, *naive.gradients(value, z1, row)], [right, *naive.gradients(right, z1, row)]
        )


def test_the_inputs_are_left_alone(path):
    """Tiles work in place, but never in what they were given."""
    for kernel in list(KERNELS.values())[::3]:
        z1, z2, q = pair(N, queue=QUEUE)
        before = [x.detach().clone() for x in (z1, z2, q)]
        cs.InfoNCE(kernel)(z1, z2, queue=q).backward()
        for x, y in zip((z1, z2, q), before, strict=True):
            assert torch.equal(x, y)


def test_an_embedding_changed_before_backward_is_refused():
    """In-place changes after the forward pass would give the gradient of another batch."""
    z = pair(N)[0].detach().requires_grad_()
    h = z * 2
    value = cs.InfoNCE(cs.Gaussian(0.5))(h, h + 1)
    with torch.no_grad():
        h.add_(1.0)
    g = torch.autograd.grad(value, z)[0]
    h = z * 2
    right = torch.autograd.grad(cs.InfoNCE(cs.Gaussian(0.5))(h, h + 1), z)[0]
    close(g, right)


# ---- weights ----


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 7.0, 1e6, 1e30])
@pytest.mark.parametrize("spread", [0.3, 2.5])
def test_scaling_all_weights_of_a_sum_changes_nothing(scale, spread):
    """exp(-50) * 1e-30 is below all that float32 holds, unless weights stay in the logarithm."""
    z1, z2 = (spread * z.detach().float() for z in pair(8))
    plain, scaled = (
        cs.InfoNCE(cs.Sum(cs.Gaussian(0.5), cs.Laplace(0.5), weights=(s, 2 * s)))
        for s in (1.0, scale)
    )
    close(scaled(z1, z2), plain(z1, z2))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_weight_of_a_lone_kernel_changes_nothing(scale):
    z1, z2 = (z.detach().float().requires_grad_() for z in pair(8))
    for kernel in (cs.Gaussian(0.5), cs.Dot(1.0), cs.Laplace(0.3)):
        found = cs.InfoNCE(cs.Sum(kernel, weights=(scale,)))(z1, z2)
        right = cs.InfoNCE(kernel)(z1, z2)
        close(found, right)
        all_close(naive.gradients(found, z1, z2), naive.gradients(right, z1, z2))


@pytest.mark.parametrize("p", [0.02, 0.05, 0.1, 8, 30])
def test_extreme_powers(p):
    """The p-th root of a sum over many dimensions overflows, though its p-th power does not."""
    z1, z2 = (z.detach().float().requires_grad_() for z in pair(6, d=64))
    kernel = cs.Lp(p, tau=10.0)
    value = cs.InfoNCE(kernel)(z1, z2)
    found = [value.detach(), *naive.gradients(value, z1, z2)]
    all_close(found, naive.infonce_blocks(kernel, "AllButSelf", z1.detach(), z2.detach()))


PLAIN_KERNELS = [
    cs.Cosine(0.5),
    cs.Cosine(0.05),
    cs.Cosine(cs.Learnable(0.2)),
    cs.Dot([0.5, 1.0, 2.0, 1.0, 3.0, 0.7]),
    cs.Gaussian([0.5, 1.0, 2.0, 1.0, 3.0, 0.7]),
    cs.Gaussian(cs.Learnable(0.02)),
    cs.Laplace(cs.Learnable(0.5)),
    cs.Laplace(0.02),
    cs.Exponential(1.5, 0.5),
    cs.Cauchy(cs.Learnable(0.5)),
    cs.StudentT(2.0, 0.5),
    cs.StudentT(7.5, [0.5, 1.0, 2.0, 1.0, 3.0, 0.7]),
    cs.Sum(cs.Gaussian(0.5), cs.Laplace(0.5)),
    cs.Sum(cs.Cauchy(0.5), cs.Laplace(0.5), cs.Exponential(1.5, 1.0), weights=(1.0, 0.5, 3.0)),
]


@pytest.mark.parametrize("near", [False, True], ids=["apart", "with equal rows"])
@pytest.mark.parametrize("kernel", PLAIN_KERNELS, ids=repr)
@pytest.mark.parametrize("negatives", [cs.AllButSelf(), cs.AllButPair()], ids=repr)
def test_the_dense_path_is_the_tiled_one(negatives, kernel, near, monkeypatch):
    """A batch of a few hundred takes a path of its own: same value, same gradients, both orders."""
    torch.manual_seed(0)
    z1, z2 = (torch.randn(80, 6, dtype=torch.float64) for _ in range(2))
    if near:
        z1[3], z2[5], z2[6] = z1[4], z1[5], z1[7] * (1 + 1e-9)
    z1.requires_grad_()
    z2.requires_grad_()
    objective = cs.InfoNCE(kernel, negatives)
    wanted = [z1, z2, *objective.parameters()]

    def everything() -> list[torch.Tensor]:
        loss = objective(z1, z2)
        first = torch.autograd.grad(loss, wanted, retain_graph=True)
        again = torch.autograd.grad(loss, wanted, retain_graph=True)
        graph = torch.autograd.grad(loss, wanted, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in graph), wanted)
        terms = objective.terms(z1, z2)
        apart = torch.autograd.grad(3 * terms["repel"] - terms["attract"], wanted)
        return [loss, *first, *again, *graph, *second, *terms.values(), *apart]

    assert z1.shape[0] * 2 in range(*dense.ROWS)
    used = []
    monkeypatch.setattr(dense._Matrix, "log_sums", _counted(dense._Matrix.log_sums, used))
    here = everything()
    assert used, "the dense path was not taken"
    monkeypatch.setattr(dense, "ROWS", (0, 0))
    for found, right in zip(here, everything(), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-8, atol=1e-10)


def _counted(function, calls):
    def counting(*arguments):
        calls.append(1)
        return function(*arguments)

    return counting


def test_inference_leaves_training_alone():
    """Memory that inference mode has touched may not be written to in training."""
    z = torch.randn(700, 4)
    for kernel in (cs.Gaussian(0.5), cs.Cosine(0.01), cs.Cosine(0.5)):
        objective = cs.InfoNCE(kernel)
        with torch.inference_mode():
            before = float(objective(z, z + 0.1))
        view = z.clone().requires_grad_()
        after = objective(view, z + 0.1)
        after.backward()
        assert before == pytest.approx(after.item(), rel=1e-6)


@pytest.mark.parametrize("n", [20, 100, 400])
def test_activation_checkpointing(n):
    """Saved tensors that are recomputed may be asked for once."""
    torch.manual_seed(0)
    x, y = torch.randn(n, 6, requires_grad=True), torch.randn(n, 6)
    for objective in (cs.InfoNCE(), cs.InfoNCE(cs.Laplace(0.5)), cs.SupCon(cs.Gaussian(0.5))):
        labels = torch.arange(n) % 5 if isinstance(objective, cs.SupCon) else None
        (plain,) = torch.autograd.grad(objective(x, y, labels), x)
        value = checkpoint(lambda a: objective(a, y, labels), x, use_reentrant=False)  # noqa: B023
        (again,) = torch.autograd.grad(value, x)
        torch.testing.assert_close(plain, again)


@pytest.mark.parametrize("scale", [1e-45, 1e-20, 1e38, 1e300])
def test_the_size_of_all_weights_does_not_matter(scale):
    """Sums of weighted k would leave float32."""
    z1, z2 = torch.randn(2, 200, 5)
    for k1, k2 in ((cs.Cosine(0.1), cs.Cosine(0.2)), (cs.Gaussian(0.5), cs.Laplace(0.5))):
        right = cs.InfoNCE(cs.Sum(k1, k2))(z1, z2)
        found = cs.InfoNCE(cs.Sum(k1, k2, weights=(scale, scale)))(z1, z2)
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)  # log 1e300 rounds by 3e-5


def test_two_threads_do_not_share_memory():
    """Tiles are reused between calls, by one thread each."""
    torch.manual_seed(0)
    batches = [torch.randn(2, 150 + 10 * k, 6) for k in range(8)]

    def gradient(k: int) -> torch.Tensor:
        z1, z2 = batches[k % 8][0].clone().requires_grad_(), batches[k % 8][1]
        cs.InfoNCE(cs.Laplace(0.5))(z1, z2).backward()
        return z1.grad

    alone = [gradient(k) for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for k, found in enumerate(pool.map(gradient, range(64))):
            assert torch.equal(found, alone[k % 8])
