"""Temperatures per dimension, measured or trained: formulas, bounds and round trips."""

import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.errors import InputError
from chiaroscuro.objectives import adapt, adapts
from tolerances import close

D = 4
KERNELS = (cs.Cosine, cs.Dot, cs.Gaussian, cs.Laplace, lambda tau: cs.Lp(p=3, tau=tau))


def pairs(n=64, seed=0):
    """Dimension 0 is content, the last varies most inside pairs."""
    draw = torch.Generator().manual_seed(seed)
    z1, noise = torch.randn(2, n, D, generator=draw, dtype=torch.float64)
    return z1, z1 + noise * torch.tensor([0.0, 0.1, 0.5, 1.0])


@pytest.mark.parametrize("make", [cs.Adaptive, cs.Balanced], ids=["adaptive", "balanced"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_at_the_start_it_is_the_plain_number(kernel, make):
    z1, z2 = pairs()
    close(kernel(make(0.4, D)).log(z1, z2), kernel([0.4] * D).log(z1, z2))
    ours, plain = cs.InfoNCE(kernel(make(0.4, D))), cs.InfoNCE(kernel([0.4] * D))
    close(ours(z1, z2), plain(z1, z2))


def test_shares_are_variances_inside_pairs_over_all():
    """Naive, dimension by dimension; one batch replaces the running mean if momentum is 0."""
    z1, z2 = pairs()
    tau = cs.Adaptive(0.5, D, momentum=0.0)
    tau.observe(z1, z2)
    for k in range(D):
        inside = sum(float(a - b) ** 2 for a, b in zip(z1[:, k], z2[:, k], strict=True)) / 64 / 2
        every = torch.cat([z1[:, k], z2[:, k]])
        assert float(tau.share[k]) == pytest.approx(
            inside / float(every.var(correction=0)), rel=1e-5
        )
    slow = cs.Adaptive(0.5, D, momentum=0.9)
    slow.observe(z1, z2)
    close(slow.share, 0.9 + 0.1 * tau.share)


def test_content_gets_the_smaller_temperature_and_the_mean_stays():
    z1, z2 = pairs(4096)
    tau = cs.Adaptive(0.5, D, momentum=0.0, most=1e6)
    tau.observe(z1[:, 1:].repeat(1, 2)[:, :D], z2[:, 1:].repeat(1, 2)[:, :D])
    value = tau.value()
    assert value[0] < value[1] < value[2]
    assert float(value.log().mean().exp()) == pytest.approx(0.5)
    # Prop. 3: tau_c / tau_s = sigma_c / sigma_s in units of the marginal
    share = tau.share.double()
    assert float(value[0] / value[1]) == pytest.approx(float((share[0] / share[1]).sqrt()))
    turned = cs.Adaptive(0.5, D, momentum=0.0, power=-0.5, most=1e6, share=tau.share.tolist())
    close(turned.value() * value, torch.full((D,), 0.25, dtype=torch.float64))


def test_true_content_has_a_temperature_above_zero():
    tau = cs.Adaptive(0.5, D, momentum=0.0, most=10.0)
    tau.observe(*pairs())
    assert float(tau.value()[0]) == pytest.approx(0.05)
    assert float(tau.value().max()) <= 5.0 + 1e-12
    collapsed = cs.Adaptive(0.5, D, momentum=0.0)
    collapsed.observe(torch.ones(8, D), torch.ones(8, D))
    close(collapsed.value(), torch.full((D,), 0.5, dtype=torch.float64))


def test_a_scale_of_a_dimension_changes_nothing():
    z1, z2 = pairs()
    scale = torch.tensor([1.0, 5.0, 0.01, 100.0])
    one, two = (cs.Adaptive(0.5, D, momentum=0.0) for _ in range(2))
    one.observe(z1, z2)
    two.observe(z1 * scale, z2 * scale)
    close(one.value(), two.value())


def felt(tau, z):
    """The one temperature that gives z the same variance: sum v / sum (v / tau)."""
    v = z.detach().double().var(dim=0, correction=0)
    return float(v.sum() / (v / tau.value().detach()).sum())


def test_balanced_cannot_fall_as_a_whole():
    """Trained to make the loss small, the temperature felt stays; a free temperature falls."""
    z1, z2 = pairs()
    u = torch.nn.functional.normalize(torch.cat([z1, z2]), dim=1)
    held, free = cs.Balanced(0.5, D, momentum=0.0), cs.Learnable([0.5] * D)
    for tau in (held, free):
        loss_of = cs.InfoNCE(cs.Cosine(tau=tau))
        adam = torch.optim.Adam(loss_of.parameters(), lr=0.1)
        before = float(loss_of(z1, z2).detach())
        for _ in range(200):
            adam.zero_grad()
            loss = loss_of(z1, z2)
            loss.backward()
            adam.step()
            adapt(loss_of, z1, z2)
        assert float(loss.detach()) < before
    value = held.value().detach()
    assert felt(held, u) == pytest.approx(0.5, rel=1e-5)
    assert float(value.max() / value.min()) > 1.5
    assert 0.5 / 100 <= float(value.min()) < float(value.max()) <= 0.5 * 100
    assert felt(free, u) < 0.4


def test_balanced_cannot_hide_behind_dimensions_that_die():
    """With an encoder that may leave dimensions empty the loss gets no sharper than it was."""
    draw = torch.Generator().manual_seed(0)
    W = torch.eye(8).requires_grad_()
    tau = cs.Balanced(0.3, 8)
    loss_of = cs.InfoNCE(cs.Cosine(tau=tau))
    adam = torch.optim.Adam([W, *loss_of.parameters()], lr=0.05)
    for _ in range(300):
        x = torch.randn(64, 8, generator=draw)
        noise = torch.randn(64, 8, generator=draw) * torch.tensor([0.1] * 4 + [1.0] * 4)
        z1, z2 = x @ W, (x + noise) @ W
        adam.zero_grad()
        loss_of(z1, z2).backward()
        adam.step()
        adapt(loss_of, z1, z2)
    value = tau.value().detach()
    assert float(value.max() / value.min()) > 1.1
    assert felt(tau, torch.nn.functional.normalize(z1, dim=1)) == pytest.approx(0.3, rel=0.1)


def test_a_constant_dimension_has_no_influence():
    z1, z2 = pairs()
    z1[:, 3] = z2[:, 3] = 7.0
    tau = cs.Balanced(0.5, D, momentum=0.0, log_ratio=[0.2, -0.1, 0.4, 2.0])
    tau.observe(z1, z2)
    without = cs.Balanced(0.5, 3, momentum=0.0, log_ratio=[0.2, -0.1, 0.4])
    without.observe(z1[:, :3], z2[:, :3])
    close(tau.value()[:3], without.value(), tolerance=1e-6)  # shares are kept in float32
    flat = cs.Balanced(0.5, D, momentum=0.0)
    flat.observe(torch.ones(8, D), torch.ones(8, D))
    close(flat.value(), torch.full((D,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("make", [cs.Adaptive, cs.Balanced], ids=["adaptive", "balanced"])
def test_one_pair_is_enough_and_none_or_nan_is_a_sentence(make):
    tau = make(0.5, D, momentum=0.0)
    tau.observe(*(z[:1] for z in pairs()))
    assert tau.value().isfinite().all()
    z1, z2 = pairs()
    z2[5, 1] = float("nan")
    with pytest.raises(InputError, match="1 of 64 pairs"):
        tau.observe(z1, z2)
    with pytest.raises(InputError, match=r"\(0, 4\)"):
        tau.observe(z1[:0], z2[:0])
    assert tau.value().isfinite().all()


def test_balanced_gradient():
    z1, z2 = (z[:6] for z in pairs())

    def loss(a):
        tau = cs.Balanced(0.5, D).double()
        del tau._parameters["weight"]
        tau.weight = a
        return cs.InfoNCE(cs.Gaussian(tau=tau))(z1, z2)

    start = torch.tensor([0.3, -0.2, 0.1, 0.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, start)


def test_round_trips():
    tau = cs.Adaptive(0.3, D, momentum=0.5)
    tau.observe(*pairs())
    trained = cs.Balanced(0.3, D, log_ratio=[0.1, -0.3, 0.2, 0.0])
    trained.observe(*pairs())
    for one in (tau, trained, cs.Adaptive(0.3, D), cs.Balanced(0.3, D)):
        objective = cs.InfoNCE(cs.Gaussian(tau=one))
        back = cs.parse(repr(objective))
        assert back == objective
        assert torch.equal(back.kernel.tau.value(), one.value())
        fresh = cs.InfoNCE(cs.Gaussian(tau=type(one)(0.3, D)))
        fresh.load_state_dict(objective.state_dict())
        assert torch.equal(fresh.kernel.tau.value(), one.value())


def test_adapt_looks_where_the_kernel_looks():
    z1, z2 = pairs()
    tau = lambda d=D: cs.Adaptive(0.5, d, momentum=0.0)
    cosine, gaussian = cs.InfoNCE(cs.Cosine(tau=tau())), cs.InfoNCE(cs.Gaussian(tau=tau()))
    adapt(cosine, z1, z2)
    adapt(gaussian, z1, z2)
    by_hand = tau()
    by_hand.observe(*(z / z.norm(dim=1, keepdim=True) for z in (z1, z2)))
    close(cosine.kernel.tau.share, by_hand.share)
    assert not torch.allclose(cosine.kernel.tau.share, gaussian.kernel.tau.share)
    halves = cs.InfoNCE(cs.Concat(cs.Gaussian(tau=1.0), cs.Gaussian(tau=tau(2))))
    part = cs.OnDims(cs.InfoNCE(cs.Gaussian(tau=tau(2))), 2, 4)
    both = cs.Weighted((1.0, halves), (0.5, part))
    assert adapts(both)
    adapt(both, z1, z2)
    expected = gaussian.kernel.tau.share[2:]
    close(part.objective.kernel.tau.share, expected)
    second = halves.kernel.parts(D)[-1].leaf.tau
    close(second.share, expected)
    plain = cs.InfoNCE()
    adapt(plain, z1, z2)
    assert not adapts(plain)


WRONG = {
    "no dimensions": (lambda: cs.Adaptive(0.5, 0), "0"),
    "many numbers": (lambda: cs.Adaptive([0.5, 0.5], 2), "0.5"),
    "negative": (lambda: cs.Balanced(-0.5, 2), "-0.5"),
    "no room": (lambda: cs.Balanced(0.5, 2, most=1.0), "1.0"),
    "momentum": (lambda: cs.Adaptive(0.5, 2, momentum=1.0), "1.0"),
    "shares": (lambda: cs.Adaptive(0.5, 2, share=[1.0, -1.0]), "-1.0"),
    "no variance": (lambda: cs.Balanced(0.5, 2, variance=0.0), "0.0"),
    "shares of nan": (lambda: cs.Adaptive(0.5, 2, share=float("nan")), "nan"),
    "too many": (lambda: cs.Balanced(0.5, 2, log_ratio=[0.0] * 3), "(3,)"),
    "another dimension": (lambda: cs.Adaptive(0.5, 2).observe(*pairs()), "(64, 4)"),
    "of the kernel": (
        lambda: cs.InfoNCE(cs.Gaussian(tau=cs.Adaptive(0.5, 3)))(*pairs()),
        "3 temperatures for 4",
    ),
}


@pytest.mark.parametrize(("call", "said"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_a_sentence(call, said):
    with pytest.raises(InputError) as error:
        call()
    assert said in str(error.value)


@pytest.mark.parametrize(("kind", "buffer"), [("Adaptive", "share"), ("Balanced", "moments")])
def test_training_measures_and_resumes(tmp_path, kind, buffer):
    """A run that adapts has moved what it measures, and one resumed half-way ends with the same."""
    process = cs.data.Process(
        cs.data.Box(4), 2, cs.data.Normal(0.2), mixing=cs.data.Linear(4), n=200
    )
    settings = {
        "objective": f"InfoNCE(kernel=Gaussian(tau={kind}(0.5, d=4, momentum=0.5)))",
        "epochs": 2,
        "batch": 40,
        "data": {"source": repr(process)},
        "views": {"first": "", "fresh": True},
        "network": {
            "encoder": "MLP(d_in=4, d=8, depth=2, width=16)",
            "projector": "Projector(d=4, depth=1)",
        },
        "optimiser": {"name": "adamw", "lr": 1e-3},
        "schedule": {"warmup": 0.0},
        "device": "cpu",
    }
    from chiaroscuro.artifacts import checkpoints

    def share(run):
        found = checkpoints.latest_good(run.checkpoints).checkpoint
        (name,) = [n for n in found.arrays if n.endswith(buffer)]
        return found.arrays[name]

    whole = cs.train(settings, tmp_path / "whole")
    assert abs(share(whole) - 1).max() > 1e-3

    def stop(moment):
        if moment.epoch == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cs.train(settings, tmp_path / "half", callbacks=[stop])
    half = cs.train(settings, tmp_path / "half", resume=True)
    assert (share(half) == share(whole)).all()
