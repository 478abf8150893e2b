"""Objectives against their transcriptions, their closed forms, and each other."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

import chiaroscuro as cs
from oracles import closed, naive
from tolerances import close
from zoo import (
    BATCH_NEGATIVES,
    KERNELS,
    NEGATIVES,
    OBJECTIVES,
    D,
    call,
    double,
    extras,
    labels,
    pair,
)

every_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
every_negatives = pytest.mark.parametrize("negatives", BATCH_NEGATIVES)
N = 5


def unit(z):
    return normalize(z.detach(), dim=1)


def known(objective, z1):
    """Labels for all who may want them, and a queue for those who need one."""
    return {"labels": labels(N), **extras(objective, z1)}


def with_gradients(value, *views):
    return [value.detach(), *naive.gradients(value, *views)]


def all_close(found, right, tolerance=None):
    for k, (a, b) in enumerate(zip(found, right, strict=True)):
        close(a, b, tolerance, what=f"gradient {k}" if k else "value")


# ---- values and gradients ----


@every_objective
def test_value_and_gradient_are_the_transcription(objective):
    objective, (z1, z2) = double(objective), pair(N)
    inputs = (z1, z2, *objective.parameters())
    found = with_gradients(call(objective, z1, z2), *inputs)
    right = with_gradients(naive.loss(objective, z1, z2, **known(objective, z1)), *inputs)
    all_close(found, right)


@every_objective
def test_float32(objective):
    z1, z2 = pair(N, dtype=torch.float32)
    x1, x2 = (z.detach().double().requires_grad_() for z in (z1, z2))
    found = with_gradients(call(objective, z1, z2), z1, z2)
    assert found[0].dtype == torch.float32
    all_close(found, with_gradients(naive.loss(objective, x1, x2, **known(objective, x1)), x1, x2))


@every_objective
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_inputs_are_widened(objective, dtype):
    """At least float32, and the loss of the rounded inputs: nothing is accumulated in half."""
    z1, z2 = pair(N, dtype=dtype)
    value = call(objective, z1, z2)
    assert value.dtype == torch.float32
    close(value, naive.loss(objective, z1.double(), z2.double(), **known(objective, z1.double())))


@every_objective
def test_mixed_dtypes_take_the_wider(objective):
    z1, z2 = pair(N)
    value = call(objective, z1.float(), z2)
    assert value.dtype == torch.float64
    close(value, call(objective, z1.float().double(), z2))


@every_objective
def test_gradcheck(objective):
    objective = double(objective)
    if objective.directed or isinstance(objective, cs.SwAV):
        pytest.skip("its gradient stops at the target, on purpose: tested below")
    views = (*pair(3), *objective.parameters())
    f = lambda z1, z2, *_: call(objective, z1, z2, torch.tensor([1, 1, 0]))
    assert torch.autograd.gradcheck(f, views, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, views, fast_mode=True)


@every_objective
def test_a_gradient_that_stays_in_the_graph_is_the_same_gradient(objective):
    objective, (z1, z2) = double(objective), pair(N)
    value = call(objective, z1, z2)
    plain = torch.autograd.grad(value, (z1, z2), retain_graph=True, allow_unused=True)
    graph = torch.autograd.grad(value, (z1, z2), create_graph=True, allow_unused=True)
    for a, b in zip(graph, plain, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


# ---- laws ----


@every_objective
def test_the_order_of_samples_does_not_matter(objective):
    (z1, z2), order = pair(N), torch.tensor([3, 0, 4, 1, 2])
    y = labels(N)
    close(call(objective, z1[order], z2[order], y[order]), call(objective, z1, z2, y))


EXCHANGEABLE = {
    name: o for name, o in OBJECTIVES.items()
    if "anchors='first'" not in repr(o) and not o.directed
}  # fmt: skip


@pytest.mark.parametrize("objective", EXCHANGEABLE.values(), ids=EXCHANGEABLE)
def test_the_views_can_be_exchanged(objective):
    z1, z2 = pair(N)
    close(call(objective, z2, z1), call(objective, z1, z2))


ISOTROPIC = [
    cs.InfoNCE(kernel, negatives)
    for kernel in (cs.Cosine(0.2), cs.Dot(1.0), cs.Gaussian(0.5), cs.Laplace(0.5), cs.Lp(2, 1.0))
    for negatives in BATCH_NEGATIVES.values()
]
ISOTROPIC += [
    cs.InfoNCE(cs.Exponential(0.5, 0.5)), cs.InfoNCE(cs.Sum(cs.Gaussian(0.5), cs.Laplace(0.5))),
    cs.SupCon(), cs.Generalised(), cs.BYOL(), cs.SpectralContrastive(), cs.AlignUniform(),
]  # fmt: skip
ANISOTROPIC = [
    cs.InfoNCE(cs.Gaussian([1.0, 0.7, 0.4, 1.5])), cs.InfoNCE(cs.Lp(1, 1.0)), cs.VICReg(),
    cs.InfoNCE(cs.Concat(cs.Gaussian(0.5), cs.Laplace(0.5))), cs.BarlowTwins(),
    cs.OnDims(cs.InfoNCE(), 0, 2),
]  # fmt: skip


def turned(objective):
    z1, z2 = pair(N)
    q = torch.linalg.qr(pair(D, seed=5)[0].detach())[0]
    return float((call(objective, z1 @ q, z2 @ q) - call(objective, z1, z2)).detach().abs())


@pytest.mark.parametrize("objective", ISOTROPIC, ids=repr)
def test_rotations_do_not_matter_to_the_isotropic(objective):
    assert turned(objective) < 1e-10


@pytest.mark.parametrize("objective", ANISOTROPIC, ids=repr)
def test_rotations_matter_to_the_others(objective):
    assert turned(objective) > 1e-3


@every_objective
def test_terms_add_up(objective):
    """loss = repel - attract, for all that split; the others say so."""
    z1, z2 = pair(N)
    more = extras(objective, z1)
    inner = getattr(objective, "objective", objective)
    if type(inner).split is cs.Objective.split:
        with pytest.raises(cs.InputError, match=rf"`{type(inner).__name__}\.terms`"):
            objective.terms(z1, z2, **more)
        return
    terms = objective.terms(z1, z2, **more)
    assert list(terms) == ["attract", "repel"]
    close(terms["repel"] - terms["attract"], objective(z1, z2, **more))


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_the_terms_of_infonce_are_those_of_the_loop(negatives):
    for anchors in ("both", "first"):
        z1, z2, q = pair(N, queue=3)
        terms = cs.InfoNCE(cs.Laplace(0.5), NEGATIVES[negatives], anchors).terms(z1, z2, queue=q)
        right = naive.infonce_terms(cs.Laplace(0.5), negatives, anchors, z1, z2, q)
        close(terms["attract"], right[0])
        close(terms["repel"], right[1])


@every_objective
def test_windows_add_up_where_the_loss_is_a_sum_over_anchors_and_are_refused_elsewhere(objective):
    """A window that is silently ignored would count a batch once per rank."""
    z1, z2 = pair(N)
    more = extras(objective, z1)
    halves = lambda: sum(objective(z1, z2, **more, window=w) for w in ((0, 2), (2, 5)))
    if objective.reduces == "anchors":
        close(halves(), objective(z1, z2, **more))
    else:
        with pytest.raises(cs.InputError, match="window"):
            halves()


@every_objective
def test_a_collapsed_batch_has_a_finite_gradient(objective):
    """All points equal, or all zero: distances, lengths and deviations vanish."""
    for point in (torch.zeros(N, D), torch.ones(N, D)):
        z1, z2 = point.clone().requires_grad_(), point.clone().requires_grad_()
        for x in with_gradients(call(objective, z1, z2), z1, z2):
            assert x.isfinite().all()


# ---- closed forms ----


@every_negatives
@pytest.mark.parametrize("n", [2, 7])
def test_collapsed(negatives, n):
    """log of the number of candidates, for every kernel; gradient zero."""
    for kernel in KERNELS.values():
        z1, z2 = (torch.ones(n, D).double().requires_grad_() for _ in range(2))
        found = with_gradients(cs.InfoNCE(kernel, NEGATIVES[negatives])(z1, z2), z1, z2)
        close(found[0], closed.collapsed(negatives, n))
        if kernel.stationary:
            all_close(found[1:], [torch.zeros(n, D)] * 2)


@every_negatives
@pytest.mark.parametrize("tau", [0.07, 0.5, 2.0])
@pytest.mark.parametrize("n", [2, 6])
def test_orthonormal_simplex_and_antipodal(negatives, tau, n):
    loss = cs.InfoNCE(cs.Cosine(tau), NEGATIVES[negatives])
    eye, point = torch.eye(n).double(), torch.ones(n, 3).double()
    close(loss(eye, 3 * eye), closed.orthonormal(negatives, n, tau))
    corners = eye - 1 / n
    close(loss(corners, corners), closed.simplex(negatives, n, tau, between=-1 / (n - 1)))
    close(loss(point, -2 * point), closed.antipodal(negatives, n, tau))


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_generalised_of_even_points_on_the_circle(n, tau):
    angle = torch.arange(n, dtype=torch.float64) * 2 * math.pi / n
    z = torch.stack([angle.cos(), angle.sin()], dim=1)
    close(cs.Generalised("log1p", cs.Gaussian(tau))(z, z), closed.circle(n, tau))


def test_extremes_of_the_others():
    n = 4
    eye, zero = torch.eye(n).double(), torch.zeros(n, n).double()
    one_hot = eye - eye.mean(0)
    close(cs.BYOL()(eye, 5 * eye), 0.0)
    close(cs.BYOL()(eye, -eye), 4.0)
    close(cs.SpectralContrastive()(eye, eye), -2.0)
    close(cs.SpectralContrastive()(zero, zero), 0.0)
    close(cs.VICReg()(zero, zero), 2 * 25 * (1 - 0.01))
    close(cs.BarlowTwins()(zero, zero), float(n))
    signs = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]).double()
    close(cs.BarlowTwins()(signs, 2 * signs + 1), 0.0)
    close(cs.VICReg()(signs, signs), 0.0)
    close(cs.AlignUniform()(one_hot, one_hot), -2.0 * 2 * n / (n - 1))
    close(cs.AlignUniform()(torch.ones(n, 2).double(), torch.ones(n, 2).double()), 0.0)


# ---- relations: InfoNCE and its values ----


def test_nt_xent_is_a_cross_entropy_over_the_2n_minus_1_others():
    tau, (z1, z2) = 0.5, pair(N)
    u = normalize(torch.cat([z1, z2]), dim=1)
    logits = (u @ u.T / tau).fill_diagonal_(-torch.inf)
    right = cross_entropy(logits, torch.arange(2 * N).roll(N))
    found = cs.InfoNCE(cs.Cosine(tau), cs.AllButSelf())(z1, z2)
    all_close(with_gradients(found, z1, z2), with_gradients(right, z1, z2))


def test_clip_is_the_symmetric_cross_entropy():
    tau, (z1, z2) = 0.07, pair(N)
    logits = normalize(z1, dim=1) @ normalize(z2, dim=1).T / tau
    right = (cross_entropy(logits, torch.arange(N)) + cross_entropy(logits.T, torch.arange(N))) / 2
    found = cs.InfoNCE(cs.Cosine(tau), cs.OtherView())(z1, z2)
    all_close(with_gradients(found, z1, z2), with_gradients(right, z1, z2))


def test_symbol_context_normalises_over_contexts_only():
    z1, z2 = pair(N)
    right = cross_entropy(z1 @ z2.T, torch.arange(N))
    found = cs.InfoNCE(cs.Dot(1.0), cs.OtherView(), anchors="first")(z1, z2)
    all_close(with_gradients(found, z1, z2), with_gradients(right, z1, z2))


def test_content_style_loss_takes_negatives_of_its_own_view():
    z1, z2 = pair(N)
    own = (-(torch.cdist(z1, z1) ** 2) / 2).fill_diagonal_(-torch.inf)
    positive = -((z1 - z2) ** 2).sum(1) / 2
    right = (torch.logaddexp(torch.logsumexp(own, 1), positive) - positive).mean()
    close(cs.InfoNCE(cs.Gaussian(1.0), cs.SameView(), anchors="first")(z1, z2), right)


def test_of_two_identical_views_same_view_is_other_view():
    z = pair(N)[0]
    for kernel in KERNELS.values():
        same, other = (cs.InfoNCE(kernel, c) for c in (cs.SameView(), cs.OtherView()))
        close(same(z, z), other(z, z))


def test_adding_the_positive_to_the_decoupled_sum_gives_all_but_self():
    """loss_self = log(1 + exp(loss_pair)), anchor by anchor: windows of one sample, one view."""
    z1, z2 = pair(N)
    for kernel in KERNELS.values():
        pair_, self_ = (
            cs.InfoNCE(kernel, c, anchors="first") for c in (cs.AllButPair(), cs.AllButSelf())
        )
        for i in range(N):
            left_out = N * pair_(z1, z2, window=(i, i + 1))
            close(N * self_(z1, z2, window=(i, i + 1)), torch.log1p(left_out.exp()))


def test_the_decoupled_loss_has_no_lower_bound_of_0():
    z = torch.eye(4)
    assert cs.InfoNCE(cs.Cosine(0.1), cs.AllButPair())(z, z) < -8
    assert cs.InfoNCE(cs.Cosine(0.1), cs.AllButSelf())(z, z) >= 0


def test_the_upper_bound_by_the_nearest_negative_holds_for_the_decoupled_loss_alone():
    """loss <= beta (-mean cos of positives + mean cos of nearest negatives) + log(2(n-1))."""
    tau, n = 0.1, 6
    violated = 0
    for seed in range(200):
        z1, z2 = (z.detach() for z in pair(n, seed=seed))
        z2 = z1 + 0.1 * seed * (z2 - z1)  # from equal views to views worse than unrelated
        u1, u = unit(z1), unit(torch.cat([z1, z2]))
        cosines = u1 @ u.T
        others = ~torch.eye(n, dtype=torch.bool).repeat(1, 2)
        nearest = cosines.masked_fill(~others, -torch.inf).amax(1).mean()
        positive = (u1 * unit(z2)).sum(1).mean()
        bound = (nearest - positive) / tau + math.log(2 * (n - 1))
        left_out, standard = (
            cs.InfoNCE(cs.Cosine(tau), c, anchors="first")(z1, z2)
            for c in (cs.AllButPair(), cs.AllButSelf())
        )
        assert left_out <= bound + 1e-10
        violated += bool(standard > bound)
    assert violated > 0


@every_negatives
def test_on_unit_vectors_gaussian_and_cosine_give_the_same_loss(negatives):
    z1, z2 = (unit(z) for z in pair(N))
    gauss, cosine = (cs.InfoNCE(k(0.2), NEGATIVES[negatives]) for k in (cs.Gaussian, cs.Cosine))
    close(gauss(z1, z2), cosine(z1, z2))


def test_first_anchors_of_both_orders_make_both():
    z1, z2 = pair(N)
    for negatives in BATCH_NEGATIVES.values():
        first, both = (cs.InfoNCE(cs.Dot(2.0), negatives, anchors=a) for a in ("first", "both"))
        close((first(z1, z2) + first(z2, z1)) / 2, both(z1, z2))


def test_a_queue_adds_candidates_that_are_nobodys_positive():
    """MoCo: one positive, and the queue for negatives."""
    tau, (z1, z2, q) = 0.07, pair(N, queue=6)
    u1, u2, uq = (normalize(z, dim=1) for z in (z1, z2, q))
    logits = torch.cat([(u1 * u2).sum(1, keepdim=True), u1 @ uq.T], dim=1) / tau
    right = cross_entropy(logits, torch.zeros(N, dtype=torch.long))
    right = with_gradients(right, z1, z2, q)
    moco = cs.InfoNCE(cs.Cosine(tau), cs.OnlyPositive(), anchors="first")
    all_close(with_gradients(moco(z1, z2, queue=q), z1, z2, q), right)
    moco = cs.InfoNCE(cs.Cosine(tau), cs.OtherView(), anchors="first")
    found = sum(moco(z1[i : i + 1], z2[i : i + 1], queue=q) for i in range(N)) / N
    all_close(with_gradients(found, z1, z2, q), right)


# ---- relations: SupCon ----


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_supcon_of_distinct_labels_is_infonce(kernel):
    kernel, (z1, z2) = double(kernel), pair(N)
    found = cs.SupCon(kernel)(z1, z2, torch.tensor([9, 2, 7, -1, 0]))
    right = cs.InfoNCE(kernel, cs.AllButSelf())(z1, z2)
    inputs = (z1, z2, *kernel.parameters())
    all_close(with_gradients(found, *inputs), with_gradients(right, *inputs))


@pytest.mark.parametrize("kernel", [cs.Cosine(0.1), cs.Laplace(0.5)], ids=repr)
def test_supcon_of_one_view(kernel):
    z, y = pair(6)[0], torch.tensor([0, 1, 1, 0, 0, 1])
    found = with_gradients(cs.SupCon(kernel)(z, None, y), z)
    all_close(found, with_gradients(naive.supcon(kernel, z, None, y), z))


def test_supcon_of_one_view_refuses_a_class_of_one():
    z, y = pair(4)[0], torch.tensor([3, 5, 3, 8])
    with pytest.raises(cs.InputError, match="2 of 4 without, the first is row 1 with label 5"):
        cs.SupCon()(z, None, y)


def test_the_outer_mean_is_not_the_inner_one():
    """L_in puts the mean inside the logarithm and is never larger; some libraries compute that."""
    tau, (z1, z2), y = 0.1, pair(6), torch.tensor([0, 0, 0, 1, 1, 1])
    u, yy = normalize(torch.cat([z1, z2]), dim=1), y.repeat(2)
    log_p = (u @ u.T / tau).fill_diagonal_(-torch.inf).log_softmax(1)
    inner = []
    for i in range(12):
        positives = [p for p in range(12) if p != i and yy[p] == yy[i]]
        inner.append(-(log_p[i, positives].exp().mean().log()))
    assert cs.SupCon(cs.Cosine(tau))(z1, z2, y) > sum(inner) / 12 + 0.1


@pytest.mark.parametrize("kernel", [cs.Gaussian(0.5), cs.Cosine(0.1)], ids=repr)
def test_supcon_of_many_classes_in_blocks(kernel, monkeypatch):
    """Rows are sorted by class and only blocks that share a class are visited: none may be lost."""
    import chiaroscuro.objectives.supcon as module

    monkeypatch.setattr(module, "_BLOCK", 4)
    (z1, z2), y = pair(11), torch.tensor([5, 1, 1, 0, 5, 2, 5, 5, 1, 7, 5])
    found = with_gradients(cs.SupCon(kernel)(z1, z2, y), z1, z2)
    all_close(found, with_gradients(naive.supcon(kernel, z1, z2, y), z1, z2))


# ---- relations: the generalised loss ----


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
def test_generalised_is_infonce_with_the_positive_weighted_n_plus_1_minus_log_n(tau):
    """With Psi = log(1+t), eta = exp(-t/tau), on the sphere: exactly, for every batch."""
    z1, z2 = (unit(z) for z in pair(N))
    logits = z1 @ z2.T / tau + math.log(N + 1) * torch.eye(N).double()
    both = [cross_entropy(x, torch.arange(N), reduction="none") for x in (logits, logits.T)]
    # the positive carries weight n+1 in the denominator and 1 in the numerator
    right = torch.stack(both).mean() + math.log(N + 1) - math.log(N)
    close(cs.Generalised("log1p", cs.Gaussian(tau))(z1, z2), right)


def test_generalised_is_not_nt_xent_up_to_a_constant():
    """The difference of the two would not depend on the batch; it does."""
    differences = []
    for seed in range(5):
        z1, z2 = (unit(z) for z in pair(8, seed=seed))
        loss = cs.Generalised("log1p", cs.Gaussian(0.5))(z1, z2)
        differences.append(float(loss - cs.InfoNCE(cs.Cosine(0.5))(z1, z2)))
    assert max(differences) - min(differences) > 0.05


@pytest.mark.parametrize("anchors", ["both", "first"])
@pytest.mark.parametrize("kernel", [cs.Gaussian(0.5), cs.Laplace(0.3), cs.Dot(2.0)], ids=repr)
def test_generalised_with_the_logarithm_is_infonce_over_the_other_view_minus_log_n(kernel, anchors):
    z1, z2 = pair(N)
    right = cs.InfoNCE(kernel, cs.OtherView(), anchors)(z1, z2) - math.log(N)
    close(cs.Generalised("log", kernel, anchors)(z1, z2), right)


FUNCTIONS = {"log1p": torch.log1p, "log": torch.log, "identity": lambda t: t, "sqrt": torch.sqrt}


@pytest.mark.parametrize("anchors", ["both", "first"])
@pytest.mark.parametrize("psi", FUNCTIONS)
def test_psi_and_eta_by_name_or_as_functions(psi, anchors):
    """Four roads to one number: named or called, through the kernel or on the whole matrix."""
    z1, z2 = pair(N)
    eta = lambda t: torch.exp(-t / 0.7)
    right = with_gradients(naive.generalised(psi, eta, anchors, z1, z2), z1, z2)
    for p in (psi, FUNCTIONS[psi]):
        for e in (cs.Gaussian(0.7), eta):
            all_close(with_gradients(cs.Generalised(p, e, anchors)(z1, z2), z1, z2), right)


def test_an_eta_that_no_kernel_is():
    z1, z2 = pair(N)
    eta = lambda t: 1 / (1 + t)
    psi = lambda t: t**2
    found = cs.Generalised(psi, eta)(z1, z2)
    right = naive.generalised(psi, eta, "both", z1, z2)
    all_close(with_gradients(found, z1, z2), with_gradients(right, z1, z2))


def test_the_ratio_of_far_points_does_not_underflow():
    """eta = exp(-t/tau) of far pairs is 0 in float32: the ratio must be taken before the power."""
    z1, z2 = (10 * z.detach().float() for z in pair(N))
    right = naive.generalised("log1p", cs.Gaussian(1.0), "both", z1.double(), z2.double())
    close(cs.Generalised("log1p", cs.Gaussian(1.0))(z1, z2), right)


# ---- relations: the others ----


def test_byol_has_no_gradient_to_its_target():
    for normalise in (True, False):
        z1, z2 = pair(N)
        cs.BYOL(normalise=normalise)(z1, z2).backward()
        assert z2.grad is None or not z2.grad.any()
        assert z1.grad.abs().max() > 1e-3


def test_byol_is_2_minus_2_cosines():
    z1, z2 = pair(N)
    cosine = torch.cosine_similarity(z1, z2, dim=1).mean()
    close(cs.BYOL()(z1, z2), 2 - 2 * cosine)
    close(cs.BYOL(normalise=False)(z1, z2), (z1 - z2).square().sum(1).mean())


def test_vicreg_of_widespread_code_is_another_weighting():
    """Code that divides the invariance by d and halves the hinge: `VICReg(25/d, 12.5)`."""
    z1, z2 = pair(N)
    std = lambda z: (z.var(0) + 1e-4).sqrt()
    off = lambda c: (c.square().sum() - c.diagonal().square().sum()) / D
    hinge = lambda z: torch.relu(1 - std(z)).mean()
    right = 25 * torch.nn.functional.mse_loss(z1, z2) + 25 * (hinge(z1) + hinge(z2)) / 2
    right = right + off(torch.cov(z1.T)) + off(torch.cov(z2.T))
    close(cs.VICReg(invariance=25 / D, variance=12.5)(z1, z2), right)


def test_vicreg_of_identical_views_depends_on_the_latent_law_alone():
    z = pair(N)[0]
    terms = cs.VICReg().terms(z, z)
    assert float(terms["attract"].detach()) == 0
    close(cs.VICReg(invariance=123.0)(z, z), cs.VICReg()(z, z))


def test_barlow_twins_is_zero_exactly_for_equal_uncorrelated_views():
    signs = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]]).double()
    assert float(cs.BarlowTwins()(signs, signs)) < 1e-20
    mixed = signs @ torch.tensor([[1.0, 0.5], [0.0, 1.0]]).double()
    assert float(cs.BarlowTwins()(mixed, mixed)) > 1e-3
    assert float(cs.BarlowTwins()(signs, signs.roll(1, 0))) > 1e-3


def test_barlow_twins_of_a_constant_dimension():
    """Correlation 0 with everything and gradient 0, where dividing by the deviation gives NaN."""
    z1, z2 = pair(N)
    flat = torch.cat([z1[:, :3], torch.full((N, 1), 7.0).double()], dim=1)
    found = with_gradients(cs.BarlowTwins()(flat, z2), z1, z2)
    assert all(x.isfinite().all() for x in found)
    right = cs.BarlowTwins()(z1[:, :3], z2[:, :3]) + 1
    c = normalize(z1[:, :3] - z1[:, :3].mean(0), dim=0).T @ normalize(z2 - z2.mean(0), dim=0)[:, 3]
    close(found[0], right + 5e-3 * c.square().sum())


def test_spectral_repulsion_is_that_of_the_second_moments():
    z1, z2 = pair(N)
    everyone = torch.trace(z1.T @ z1 @ z2.T @ z2)
    close(((z1 @ z2.T) ** 2).sum(), everyone)
    right = (everyone - (z1 * z2).sum(1).square().sum()) / (N * (N - 1))
    close(cs.SpectralContrastive().terms(z1, z2)["repel"], right)


def test_uniformity_is_the_log_mean_potential():
    z1, z2 = pair(N)
    potential = lambda u: torch.pdist(u).square().mul(-2).exp().mean().log()
    right = (potential(normalize(z1, dim=1)) + potential(normalize(z2, dim=1))) / 2
    close(cs.AlignUniform(align=0.0)(z1, z2), right)
    assert float(right.detach()) < 0


def test_alignment_is_the_power_of_the_distance():
    z1, z2 = pair(N)
    distance = (normalize(z1, dim=1) - normalize(z2, dim=1)).norm(dim=1)
    for alpha in (1.0, 2.0, 3.0):
        close(cs.AlignUniform(uniform=0.0, alpha=alpha)(z1, z2), (distance**alpha).mean())


# ---- relations: combinations ----


@every_objective
def test_weighted_by_one_and_on_all_dimensions_is_the_objective_itself(objective):
    z1, z2 = pair(N)
    right = call(objective, z1, z2)
    close(call(cs.Weighted((1.0, objective)), z1, z2), right)
    close(call(cs.OnDims(objective, 0, D), z1, z2), right)


def test_weighted_is_the_weighted_sum_in_value_gradient_and_terms():
    z1, z2 = pair(N)
    f, g = cs.InfoNCE(cs.Laplace(0.5)), cs.VICReg()
    both = cs.Weighted((0.3, f), (2.0, g))
    right = with_gradients(0.3 * f(z1, z2) + 2 * g(z1, z2), z1, z2)
    all_close(with_gradients(both(z1, z2), z1, z2), right)
    for name in ("attract", "repel"):
        each = 0.3 * f.terms(z1, z2)[name] + 2 * g.terms(z1, z2)[name]
        close(both.terms(z1, z2)[name], each)


def test_a_sum_of_losses_is_not_the_loss_of_a_sum():
    z1, z2 = pair(N)
    k1, k2 = cs.Gaussian(0.5), cs.Laplace(0.5)
    losses = cs.Weighted((0.5, cs.InfoNCE(k1)), (0.5, cs.InfoNCE(k2)))
    assert abs(float((losses(z1, z2) - cs.InfoNCE(cs.Sum(k1, k2))(z1, z2)).detach())) > 1e-2


def test_outside_its_dimensions_the_gradient_is_zero():
    z1, z2, q = pair(N, queue=3)
    f = cs.OnDims(cs.InfoNCE(cs.Laplace(0.5)), 1, 3)
    for g in naive.gradients(f(z1, z2, queue=q), z1, z2, q):
        assert not g[:, [0, 3]].any()
        assert g[:, 1:3].abs().max() > 0


def test_weighted_passes_labels_to_those_who_take_them():
    """SupCon beside an unsupervised objective is a common mixture."""
    z1, z2 = pair(N)
    both = cs.Weighted((1.0, cs.SupCon()), (0.5, cs.InfoNCE()))
    right = cs.SupCon()(z1, z2, labels(N)) + 0.5 * cs.InfoNCE()(z1, z2)
    close(both(z1, z2, labels(N)), right)


@pytest.mark.parametrize("constant", [0.1, 7.0, -1e-3, 1e5])
def test_barlow_twins_does_not_correlate_rounding(constant):
    """A constant dimension less its mean is rounding noise, which has a direction of its own."""
    z = torch.randn(100, 4)
    z[:, 0] = constant
    z.requires_grad_()
    other = z.detach().flip(0)
    loss = cs.BarlowTwins()(z, other)
    loss.backward()
    rest = cs.BarlowTwins()(z.detach()[:, 1:], other[:, 1:])
    torch.testing.assert_close(loss, rest + 1)
    assert not z.grad[:, 0].any()


@pytest.mark.parametrize(
    "objective", [cs.VICReg(), cs.SpectralContrastive(), cs.InfoNCE(cs.Dot())], ids=repr
)
def test_overflow_is_a_sentence(objective):
    """Finite numbers whose squares are not."""
    z = torch.randn(10, 4) * 1e25
    with pytest.raises(cs.InputError, match=r"e\+25"):
        objective(z, z.flip(0))
