"""Losses of prediction, clustering, neighbours, all pairs and corrected negatives."""

import copy
import io
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import chiaroscuro as cs
from chiaroscuro.objectives import adapt, adapts, combinations, debiased, dino, nnclr, siglip, swav
from chiaroscuro.objectives.sinkhorn import equal_shares
from oracles import naive
from tolerances import close
from zoo import D, call, extras, labels, pair

N = 5


def with_gradients(value, *inputs):
    return [value.detach(), *naive.gradients(value, *inputs)]


def all_close(found, right, tolerance=None):
    for k, (a, b) in enumerate(zip(found, right, strict=True)):
        close(a, b, tolerance, what=f"gradient {k}" if k else "value")


# ---- prediction ----


def test_byol_is_2_plus_2_simsiam():
    z1, z2 = pair(N)
    simsiam = with_gradients(cs.SimSiam()(z1, z2), z1)
    all_close(
        with_gradients(cs.BYOL()(z1, z2), z1), [2 + 2 * simsiam[0], *(2 * g for g in simsiam[1:])]
    )


DIRECTED = [cs.BYOL(), cs.SimSiam(), cs.DINO(), cs.DINO(centring="sinkhorn"), cs.NNCLR()]


@pytest.mark.parametrize("objective", DIRECTED, ids=repr)
def test_what_is_directed_sends_no_gradient_to_the_second_view(objective):
    z1, z2 = pair(N)
    assert objective.directed
    call(objective, z1, z2).backward()
    assert z2.grad is None or not z2.grad.any()
    assert z1.grad.abs().max() > 1e-3


def test_wrappers_are_directed_when_what_they_hold_is():
    for inner in (cs.BYOL(), cs.InfoNCE()):
        for outer in (
            cs.OnDims(inner, 0, 2),
            cs.Matryoshka(inner, (2,)),
            cs.Weighted((1.0, inner)),
        ):
            assert outer.directed == inner.directed


# ---- clustering ----


def test_equal_shares_are_equal_shares():
    """Rows sum to 1 at once, columns to n/K in the limit; the level of a column is lost."""
    scores = pair(12)[0].detach()
    close(equal_shares(scores, 0.5, 1).sum(1), torch.ones(12))
    q = equal_shares(scores, 0.5, 300)
    close(q.sum(0), torch.full((D,), 12 / D), 1e-8)
    level = torch.tensor([3.0, -2.0, 0.5, 9.0]).double()
    close(equal_shares(scores + level, 0.5, 3), equal_shares(scores, 0.5, 3))


def test_equal_shares_of_a_tiny_epsilon_in_float32():
    """exp(1 / 0.001) is no number in float32."""
    scores = pair(6, dtype=torch.float32)[0].detach()
    right = equal_shares(scores.double(), 1e-3, 3)
    close(equal_shares(scores, 1e-3, 3), right, 2e-3)  # scores are known to eps / epsilon


def test_swav_is_dino_with_equal_shares_in_both_directions():
    z1, z2 = pair(N)
    one = cs.DINO(tau=0.3, target_tau=0.2, centring="sinkhorn")
    both = (one(z1, z2) + one(z2, z1)) / 2
    found = cs.SwAV(tau=0.3, epsilon=0.2)(z1, z2)
    all_close(with_gradients(found, z1, z2), with_gradients(both, z1, z2))


def test_a_constant_added_to_all_scores_of_a_sample_changes_nothing():
    objective, (z1, z2) = cs.DINO(0.3, 0.2), pair(N)
    lifted = [z + torch.arange(N)[:, None] for z in (z1, z2)]
    close(objective(*lifted), objective(z1, z2))


def test_extremes_of_clusters():
    eye = 100 * torch.eye(4).double()
    for objective in (cs.DINO(), cs.DINO(centring="sinkhorn"), cs.SwAV()):
        close(objective(eye, eye), 0.0)
        close(objective(0 * eye, 0 * eye), math.log(4))
    assert cs.DINO()(eye, eye.roll(1, 0)) > 100


# ---- the centre of DINO ----


def test_the_centre_is_a_running_mean_of_the_teachers_scores():
    objective, (z1, z2) = cs.DINO(0.3, 0.2, momentum=0.75), pair(N, dtype=torch.float32)
    before = objective(z1, z2)
    assert adapts(objective)
    right = torch.zeros(D)
    for seed in range(3):
        z1, z2 = pair(N, dtype=torch.float32, seed=seed)
        adapt(objective, z1, z2)
        right = 0.75 * right + 0.25 * z2.detach().mean(0)
    torch.testing.assert_close(objective.centre, right)
    z1, z2 = pair(N, dtype=torch.float32)
    assert not torch.equal(objective(z1, z2), before)
    x1, x2 = (z.detach().double().requires_grad_() for z in (z1, z2))
    all_close(
        with_gradients(objective(z1, z2), z1),
        with_gradients(naive.loss(copy.deepcopy(objective).double(), x1, x2), x1),
    )


def test_the_loss_itself_moves_no_centre():
    objective, (z1, z2) = cs.DINO(), pair(N)
    objective(z1, z2)
    assert not objective.centre.any()


def test_the_centre_is_reached_through_what_holds_it():
    for outer in (
        cs.Weighted((1.0, cs.DINO()), (0.1, cs.BYOL())),
        cs.OnDims(cs.DINO(), 0, 2),
        cs.Weighted((1.0, cs.OnDims(cs.DINO(), 0, 2))),
    ):
        assert adapts(outer)
        z1, z2 = pair(N)
        adapt(outer, z1, z2)
        (held,) = (m for m in outer.modules() if isinstance(m, cs.DINO))
        assert held.centre.abs().max() > 0
    assert not adapts(cs.DINO(centring="sinkhorn"))


def test_the_centre_is_saved_and_loaded_before_any_batch_told_its_size():
    objective, (z1, z2) = cs.DINO(0.3, 0.2), pair(N)
    adapt(objective, z1, z2)
    file = io.BytesIO()
    torch.save(objective.state_dict(), file)
    file.seek(0)
    fresh = cs.parse(repr(objective))
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh.centre, objective.centre)
    assert torch.equal(fresh(z1, z2), objective(z1, z2))
    with pytest.raises(cs.InputError, match="as its centre has, 4; received 3"):
        fresh(z1[:, :3], z2[:, :3])


# ---- neighbours ----


def test_neighbours_among_the_views_themselves_make_infonce():
    for kernel in (cs.Cosine(0.3), cs.Gaussian(0.5)):
        z1, z2 = pair(N)
        found = cs.NNCLR(kernel)(z1, z2, queue=z2)
        right = cs.InfoNCE(kernel, cs.OtherView(), anchors="first")(z2.detach(), z1)
        all_close(with_gradients(found, z1), with_gradients(right, z1))


def test_neighbours_in_blocks(monkeypatch):
    z1, z2, q = pair(N, queue=9)
    right = cs.NNCLR()(z1, z2, queue=q)
    monkeypatch.setattr(nnclr, "rows_at_once", lambda z, columns: 2)
    assert torch.equal(cs.NNCLR()(z1, z2, queue=q), right)


def test_neighbours_need_a_queue():
    z1, z2 = pair(N)
    with pytest.raises(cs.InputError, match="needs `queue`; received none"):
        cs.NNCLR()(z1, z2)
    with pytest.raises(cs.InputError, match="needs a queue of earlier rows; received 0"):
        cs.NNCLR()(z1, z2, queue=z1[:0])


# ---- all pairs ----


def test_siglip_of_two_orthonormal_views():
    """Positives have the logit 1/tau + bias, all others the bias."""
    eye = torch.eye(4).double()
    positive, other = 1 / 0.5 - 1.5, -1.5
    right = math.log1p(math.exp(-positive)) + 3 * math.log1p(math.exp(other))
    close(cs.SigLIP(cs.Cosine(0.5), bias=-1.5)(eye, 3 * eye), right)


def test_a_bias_far_below_leaves_the_positives():
    z1, z2 = pair(N)
    right = (60 - cs.Cosine(0.5).log_paired(z1, z2)).mean()
    close(cs.SigLIP(cs.Cosine(0.5), bias=-60.0)(z1, z2), right)


def test_siglip_learns_tau_and_bias():
    objective, (z1, z2) = cs.SigLIP(), pair(N)
    assert {name for name, _ in objective.named_parameters()} == {"bias", "kernel.tau.log_ratio"}
    for g in torch.autograd.grad(objective(z1, z2), list(objective.parameters())):
        assert g.abs() > 1e-3


class Largest(TorchDispatchMode):
    """The largest tensor that any operation made."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.entries = max(self.entries, x.untyped_storage().nbytes() // x.element_size())
        return out


@pytest.mark.parametrize("what", ["SigLIP", "groups", "neighbours"])
def test_no_matrix_of_all_pairs_is_held(what, monkeypatch):
    """Blocks of so many entries, whatever the batch; the same value and gradient as in one."""
    n, entries = 120, 3000
    objective = {"SigLIP": cs.SigLIP(), "groups": cs.InfoNCE(), "neighbours": cs.NNCLR()}[what]
    more = {"queue": pair(300)[0].detach()} if what == "neighbours" else {}
    more |= {"groups": torch.arange(n) // 2} if what == "groups" else {}
    z1, z2 = pair(n)
    right = with_gradients(objective(z1, z2, **more), z1, z2)
    monkeypatch.setattr(cs.pairwise.blocks, "ENTRIES", entries)
    with Largest() as largest:
        found = with_gradients(objective(z1, z2, **more), z1, z2)
    all_close(found, right)
    # tiles of the contrast itself are small here and kept whole: the search is what grows
    assert largest.entries <= (entries if what != "neighbours" else 240**2)


# ---- groups ----


@pytest.mark.parametrize("negatives", ["AllButSelf", "AllButPair", "OtherView", "SameView"])
@pytest.mark.parametrize("anchors", ["both", "first"])
def test_groups_are_struck_from_the_candidates(negatives, anchors):
    groups = torch.tensor([3, 7, 3, 0, 7])
    for kernel in (cs.Cosine(0.3), cs.Laplace(0.5)):
        z1, z2, q = pair(N, queue=3)
        objective = cs.InfoNCE(kernel, getattr(cs, negatives)(), anchors)
        found = objective(z1, z2, queue=q, groups=groups)
        right = naive.grouped_infonce(kernel, negatives, anchors, z1, z2, groups, q)
        all_close(with_gradients(found, z1, z2, q), with_gradients(right, z1, z2, q))


@pytest.mark.parametrize("objective", [cs.InfoNCE(), cs.SigLIP(cs.Cosine(0.3), -1.0)], ids=repr)
def test_groups_of_one_change_nothing_and_grouped_reads_them_from_labels(objective):
    z1, z2 = pair(N)
    alone, twins = torch.tensor([4, 2, 9, 0, 7]), torch.tensor([4, 4, 9, 0, 7])
    close(objective(z1, z2, groups=alone), objective(z1, z2))
    assert abs(float((objective(z1, z2, groups=twins) - objective(z1, z2)).detach())) > 1e-3
    assert torch.equal(cs.Grouped(objective)(z1, z2, twins), objective(z1, z2, groups=twins))


def test_a_group_of_all_leaves_only_the_positive():
    z1, z2 = pair(N)
    one = torch.zeros(N, dtype=torch.long)
    found = with_gradients(cs.InfoNCE()(z1, z2, groups=one), z1, z2)
    all_close(found, [torch.zeros(()), torch.zeros(N, D), torch.zeros(N, D)])
    with pytest.raises(cs.InputError, match="5 pairs of one group"):
        cs.InfoNCE(negatives=cs.AllButPair())(z1, z2, groups=one)


def test_groups_that_cannot_be():
    z1, z2 = pair(N)
    with pytest.raises(cs.InputError, match=r"one integer group for each of 5 pairs.*\(4,\)"):
        cs.InfoNCE()(z1, z2, groups=torch.arange(4))
    with pytest.raises(cs.InputError, match="needs no `groups`"):
        cs.VICReg()(z1, z2, groups=torch.arange(N))
    with pytest.raises(cs.InputError, match=r"such as `InfoNCE\(\)`; received VICReg"):
        cs.Grouped(cs.VICReg())
    with pytest.raises(cs.InputError, match="needs `labels`; received none"):
        cs.Grouped(cs.InfoNCE())(z1, z2)


# ---- corrected negatives ----


@pytest.mark.parametrize("anchors", ["both", "first"])
def test_without_prior_and_weights_it_is_infonce(anchors):
    for tau in (0.3, cs.Learnable(0.3)):
        z1, z2, q = pair(N, queue=3)
        found = cs.Debiased(cs.Cosine(tau), prior=0.0, anchors=anchors)(z1, z2, queue=q)
        right = cs.InfoNCE(cs.Cosine(tau), cs.AllButSelf(), anchors)(z1, z2, queue=q)
        all_close(with_gradients(found, z1, z2, q), with_gradients(right, z1, z2, q))


@pytest.mark.parametrize("beta", [0.0, 0.5, 2.0])
def test_corrected_negatives_with_a_queue_are_the_transcription(beta):
    z1, z2, q = pair(N, queue=4)
    found = cs.Debiased(cs.Cosine(0.5), prior=0.1, beta=beta)(z1, z2, queue=q)
    right = naive.debiased(cs.Cosine(0.5), 0.1, beta, "both", z1, z2, q)
    all_close(with_gradients(found, z1, z2, q), with_gradients(right, z1, z2, q))


def test_the_estimate_stays_above_the_smallest_similarity():
    """Positives near 1 and a large prior: the estimate is negative, and the bound takes over."""
    eye = torch.eye(4).double()
    k, m = math.exp(-2), 6
    close(cs.Debiased(cs.Cosine(0.5), prior=0.5)(eye, eye), math.log1p(m * k * k))


def test_hard_negatives_weigh_more():
    """The loss grows with beta, towards m times the hardest candidate."""
    z1, z2 = (z.detach() for z in pair(8))
    losses = [float(cs.Debiased(prior=0.0, beta=b)(z1, z2)) for b in (0.0, 0.5, 2.0, 8.0)]
    assert losses == sorted(losses)
    assert losses[-1] > losses[0] + 0.1


# ---- prefixes ----


def test_matryoshka_is_a_weighted_sum_over_prefixes_that_share_a_temperature():
    inner = cs.InfoNCE(cs.Cosine(cs.Learnable(0.5)))
    z1, z2 = pair(N)
    found = cs.Matryoshka(inner, (1, 4), weights=(0.5, 2.0))(z1, z2)
    parts = cs.Weighted((0.5, cs.OnDims(inner, 0, 1)), (2.0, cs.OnDims(inner, 0, 4)))(z1, z2)
    inputs = (z1, z2, *inner.parameters())
    all_close(with_gradients(found, *inputs), with_gradients(parts, *inputs))
    assert torch.equal(cs.Matryoshka(inner, (D,))(z1, z2), inner(z1, z2))


@pytest.mark.parametrize("dims", [(), (0, 2), (3, 2), (2, 2), (1.5,), 4, (True,)], ids=repr)
def test_prefixes_that_cannot_be(dims):
    with pytest.raises(cs.InputError, match=r"`0 < dims\[0\] < dims\[1\] < \.\.\.`; received"):
        cs.Matryoshka(cs.InfoNCE(), dims)


def test_other_refusals_of_new_objectives():
    z1, z2 = pair(N)
    refusals = {
        "one weight for each of 2 prefixes": lambda: cs.Matryoshka(cs.BYOL(), (1, 2), (1.0,)),
        "at least 6 dimensions; received 4": lambda: cs.Matryoshka(cs.BYOL(), (2, 6))(z1, z2),
        "needs an objective; received str": lambda: cs.Matryoshka("BYOL", (1, 2)),
        "`DINO` measures rows of one width": lambda: cs.Matryoshka(cs.DINO(), (1, 2)),
        '"mean" or "sinkhorn"; received \'sum\'': lambda: cs.DINO(centring="sum"),
        "from 0 to below 1; received 1": lambda: cs.DINO(momentum=1),
        r"`DINO\(iterations\)` needs a whole number of at least 1; received 0": (
            lambda: cs.DINO(iterations=0)
        ),
        "above 0.0; received 0": lambda: cs.SwAV(epsilon=0),
        "one finite number; received nan": lambda: cs.SigLIP(bias=float("nan")),
        r"`Cosine` with one temperature.*received Gaussian": lambda: cs.Debiased(cs.Gaussian(0.5)),
        "a share from 0 to below 1; received 1.0": lambda: cs.Debiased(prior=1.0),
        "received 1 pair and no queue": lambda: cs.Debiased()(z1[:1], z2[:1]),
        'needs "both" or "first"; received \'second\'': lambda: cs.Debiased(anchors="second"),
        r"`SigLIP\(kernel\)` needs a kernel; received str": lambda: cs.SigLIP("Cosine"),
        r"`NNCLR\(kernel\)` needs a kernel; received float": lambda: cs.NNCLR(0.1),
    }
    for words, attempt in refusals.items():
        with pytest.raises(cs.InputError, match=words):
            attempt()


# ---- one loss per anchor ----


PER_ANCHOR = [
    (cs.SigLIP(), N), (cs.Debiased(), 2 * N), (cs.Debiased(anchors="first"), N), (cs.DINO(), N),
    (cs.SwAV(), 2 * N), (cs.NNCLR(), N), (cs.SimSiam(), N), (cs.Grouped(cs.InfoNCE()), 2 * N),
    (cs.Matryoshka(cs.InfoNCE(), (2, 4)), 2 * N),
]  # fmt: skip


@pytest.mark.parametrize(("objective", "anchors"), PER_ANCHOR, ids=lambda x: repr(x)[:30])
def test_one_loss_per_anchor(objective, anchors):
    z1, z2 = pair(N)
    each = call(objective, z1, z2, reduction="none")
    assert each.shape == (anchors,)
    close(each.mean(), call(objective, z1, z2))
    close(each.sum(), call(objective, z1, z2, reduction="sum"))


# ---- planted mistakes: each is caught by the transcription, in value or gradient ----


CHECKED = [
    cs.SigLIP(cs.Cosine(0.3), bias=-1.0), cs.DINO(0.3, 0.2), cs.DINO(0.3, 0.2, "sinkhorn"),
    cs.SwAV(0.3, 0.2), cs.NNCLR(cs.Cosine(0.3)), cs.SimSiam(), cs.Debiased(prior=0.3, beta=0.5),
    cs.Debiased(prior=0.9), cs.Matryoshka(cs.InfoNCE(), (1, 3), (0.5, 2.0)),
    cs.Grouped(cs.InfoNCE()), cs.Grouped(cs.SigLIP(cs.Cosine(0.3), -1.0)),
]  # fmt: skip
CHECKED[1].centre = torch.tensor([0.5, -0.25, 0.0, 1.0])


def passes():
    """Whether every objective equals its transcription."""
    for objective in CHECKED:
        z1, z2 = pair(N)
        right = naive.loss(objective, z1, z2, **{"labels": labels(N), **extras(objective, z1)})
        right = with_gradients(right, z1, z2)
        try:
            all_close(with_gradients(call(objective, z1, z2), z1, z2), right, 1e-6)
        except AssertionError:
            return False
    return True


def plant_positives_among_the_negatives(patch):
    nobody = lambda self, batch, rows: torch.zeros(batch.n, batch.n, dtype=torch.bool)
    patch.setattr(cs.SigLIP, "_left_out", nobody)


def plant_other_sign_of_the_label(patch):
    patch.setattr(siglip, "logsigmoid", lambda x: torch.nn.functional.logsigmoid(-x))


def plant_target_of_the_student(patch):
    targets = cs.DINO.targets
    patch.setattr(cs.DINO, "losses", lambda self, b: dino.cross_entropies(
        targets(self, b.z1), b.z1 / self.tau))  # fmt: skip


def plant_centre_forgotten(patch):
    patch.setattr(
        cs.DINO, "targets", lambda self, z: torch.softmax(z.detach() / self.target_tau, 1)
    )


def plant_gradient_into_the_target(patch):
    cosine = torch.nn.functional.cosine_similarity
    patch.setattr(cs.SimSiam, "losses", lambda self, b: -cosine(b.z1, b.z2))


def plant_one_iteration_less(patch):
    for module in (dino, swav):
        patch.setattr(module, "equal_shares", lambda s, e, k: equal_shares(s, e, k - 1))


def plant_rows_without_columns(patch):
    for module in (dino, swav):
        patch.setattr(module, "equal_shares", lambda s, e, k: torch.softmax(s / e, 1))


def plant_codes_not_swapped(patch):
    patch.setattr(cs.SwAV, "losses", lambda self, b: torch.cat([
        dino.cross_entropies(self.codes(z), z / self.tau) for z in b.pair]))  # fmt: skip


def plant_furthest_neighbour(patch):
    patch.setattr(nnclr, "nearest", lambda k, z, q: k.log(z, q).argmin(1))


def plant_bound_forgotten(patch):
    patch.setattr(debiased.torch, "maximum", lambda a, b: a)


def plant_prior_added(patch):
    patch.setattr(debiased.torch, "expm1", lambda x: -1 - x.exp())


def plant_hardness_of_one_sum(patch):
    raised = cs.Debiased._raised
    patch.setattr(cs.Debiased, "_raised", lambda self, q: raised(self, max(q, 1.0)))


def plant_suffixes(patch):
    patch.setattr(cs.Matryoshka, "_prefixes", lambda self, b: [
        (w, b.map(lambda z, d=d: z[:, -d:]))
        for w, d in zip(self.weights, self.dims, strict=True)])  # fmt: skip


def plant_weights_forgotten(patch):
    prefixes = cs.Matryoshka._prefixes
    patch.setattr(
        cs.Matryoshka, "_prefixes", lambda self, b: [(1.0, x) for _, x in prefixes(self, b)]
    )


def plant_groups_forgotten(patch):
    patch.setattr(combinations, "_grouped", lambda batch: batch)


PLANTED = {name[6:]: f for name, f in dict(globals()).items() if name.startswith("plant_")}


def test_the_right_ones_pass():
    assert passes()


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_every_planted_mistake_is_caught(plant, monkeypatch):
    with monkeypatch.context() as patch:
        plant(patch)
        caught = not passes()
    assert caught
