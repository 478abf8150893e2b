"""More than two views, and targets that are the network itself, against transcriptions."""

import copy
import re

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from chiaroscuro.artifacts import checkpoints
from chiaroscuro.engine import FitOptions, Networks, build, fit, read_settings, step, train
from chiaroscuro.engine.crops import Crops
from chiaroscuro.engine.state import begin
from chiaroscuro.engine.step import take_step
from chiaroscuro.engine.stream import view_batches
from chiaroscuro.errors import InputError
from chiaroscuro.models import Momentum, ViT
from chiaroscuro.objectives import BYOL, InfoNCE
from chiaroscuro.pairwise import OtherView
from chiaroscuro.views import Jitter, MultiCrop, SimCLR
from planting import plant

CROPS = (
    "MultiCrop((2, SimCLR(size=16)), (3, SimCLR(size=8, scale=(0.1, 0.4))), (1, SimCLR(size=12)))"
)
SMALL = [
    "batch=6",
    "network.encoder=ResNet(depth=9, width=0.0625, stem='small')",
    "network.projector=Projector(d=4, depth=1, last='none')",
    "optimiser.name=sgd",
    "optimiser.lr=0.1",
    "optimiser.momentum=0",
    "optimiser.weight_decay=0",
]


def begun(sets):
    settings = read_settings("simclr", [*SMALL, *sets])
    options = FitOptions.of(settings)
    networks = build(settings.network, 0).double()
    state = begin(networks, settings.make_objective(), settings.optimiser, options)
    return state, copy.deepcopy(state), options


def crops(n=6):
    draw = torch.Generator().manual_seed(0)
    sizes = (16, 16, 8, 12, 8)
    return [torch.rand(n, 3, s, s, generator=draw, dtype=torch.float64) for s in sizes]


def stepped(state, loss):
    """Plain gradient descent by a transcription."""
    state.networks.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in state.networks.parameters():
            p.sub_(p.grad, alpha=0.1)


def same(found, right):
    for (name, a), b in zip(found.named_parameters(), right.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_crop_is_a_view_of_its_group():
    view = MultiCrop((2, SimCLR(size=8)), (3, SimCLR(size=4, scale=(0.1, 0.4))))
    images = torch.randint(0, 255, (5, 3, 16, 16), dtype=torch.uint8)
    made = [view(images, range(5), seed=3, epoch=2, view=v)[0] for v in range(5)]
    assert [x.shape[-1] for x in made] == [8, 8, 4, 4, 4]
    assert not any(torch.equal(made[2], x) for x in made[3:])  # each has a chance of its own
    alone = SimCLR(size=4, scale=(0.1, 0.4))(images, range(5), seed=3, epoch=2, view=4)[0]
    assert torch.equal(made[4], alone)
    assert torch.equal(view.plain(images), SimCLR(size=8).plain(images))
    with pytest.raises(InputError, match="a crop from 0 to 4; received 5"):
        view(images, range(5), view=5)


@pytest.mark.parametrize(
    "groups", [(), ((1, Jitter(noise=0.1)),), ((2, "x"),), ((0, Jitter(noise=0.1)),), (3,)]
)
def test_groups_that_are_none(groups):
    with pytest.raises(InputError, match="at least 2 crops together; received"):
        MultiCrop(*groups)


def test_batches_hold_all_crops_and_workers_make_the_same():
    images = np.random.default_rng(0).integers(0, 255, (12, 8, 8, 3), np.uint8)
    batches = view_batches(images, CROPS, batch=6)
    x1, x2, _ = batches[0]
    assert isinstance(x2, Crops)
    assert [x.shape[-1] for x in (x1, *x2)] == [16, 16, 8, 8, 8, 12]
    for here, there in zip(batches.stream(0, 3), batches.stream(0, 3, workers=1), strict=True):
        assert isinstance(there[1], Crops)
        assert all(torch.equal(a, b) for a, b in zip(here[1], there[1], strict=True))


def test_crops_of_one_size_share_a_batch_and_all_share_the_projector():
    networks = begun(["network.projector=Projector(d=4)"])[0].networks
    x = crops()
    first, rest = copy.deepcopy(networks)(x[0], Crops(x[1:]))
    h = {}
    for members in ((0, 1), (2, 4), (3,)):
        rows = networks.encode(torch.cat([x[v] for v in members]))
        h |= zip(members, rows.split(6), strict=True)
    z = networks.project(torch.cat([h[v] for v in range(5)])).split(6)
    for found, right in zip((first, *rest), z, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_two_encoders_have_no_crops():
    networks = build(
        read_settings("simclr", [*SMALL, "network.second_encoder=MLP(d_in=4)"]).network, 0
    )
    x = torch.zeros(2, 3, 8, 8)
    with pytest.raises(InputError, match="3 crops need one encoder; there are 2"):
        networks(x, Crops([x, x]))


def test_the_loss_of_crops_is_the_mean_over_crops_and_targets():
    """[caron2021dino, eq. 3]: every crop against both targets, never against itself."""
    state, naive, options = begun([])
    x = crops()
    loss = take_step(state, state.networks, (x[0], Crops(x[1:]), None), options, 1)
    first, rest = naive.networks(x[0], Crops(x[1:]))
    z = [first, *rest]
    losses = [InfoNCE()(z[v], z[i]) for i in (0, 1) for v in range(5) if v != i]
    right = sum(losses) / 8
    assert loss == pytest.approx(float(right.detach()), rel=1e-12)
    stepped(naive, right)
    same(state.networks, naive.networks)


def test_crops_against_a_slow_copy():
    sets = [
        "objective=BYOL()",
        "network.momentum=0.9",
        "network.predictor=Projector(d=4, last='none')",
    ]
    state, naive, options = begun(sets)
    x = crops()
    for group in state.optimiser.param_groups:
        group["lr"] = 0.1
    for one in (state, naive):  # no longer the network that it follows
        with torch.no_grad():
            for p in one.target.parameters():
                p.mul_(0.7)
    take_step(state, state.networks, (x[0], Crops(x[1:]), None), options, 1)
    copy_of = naive.target.module
    with torch.no_grad():
        t = [copy_of.project(copy_of.encode(one)) for one in x[:2]]
    first, rest = naive.networks(x[0], Crops(x[1:]))
    q = [first, *rest]
    losses = [BYOL()(q[v], t[i]) for i in (0, 1) for v in range(5) if v != i]
    stepped(naive, sum(losses) / 8)
    same(state.networks, naive.networks)
    for slow, old, new in zip(
        state.target.parameters(),
        naive.target.parameters(),
        naive.networks.parameters(),
        strict=True,
    ):
        torch.testing.assert_close(slow, 0.9 * old + 0.1 * new, rtol=1e-9, atol=1e-12)


def test_the_network_as_its_own_target_is_simsiam():
    """[chen2021simsiam, Alg. 1]: L = D(p1, z2)/2 + D(p2, z1)/2, the gradient stopped at z."""
    sets = [
        "objective=BYOL()",
        "symmetric=true",
        "network.own_target=true",
        "network.predictor=Projector(d=4, width=16, last='none')",
    ]
    state, naive, options = begun(sets)
    x1, x2 = crops()[:2]
    found = take_step(state, state.networks, (x1, x2, None), options, 1)
    net = naive.networks
    z = net.project(net.encode(torch.cat([x1, x2])))
    p1, p2 = net.predictor(z).chunk(2)
    z1, z2 = z.detach().chunk(2)
    negative = -(cosine_similarity(p1, z2).mean() + cosine_similarity(p2, z1).mean()) / 2
    assert found == pytest.approx(4 + 4 * float(negative.detach()), rel=1e-12)
    stepped(naive, 4 * negative)
    same(state.networks, net)


def test_targets_are_constants():
    """Of an objective that sends a gradient both ways: only predictions receive one."""
    objective = InfoNCE(negatives=OtherView(), anchors="first")
    sets = [f"objective={objective!r}", "symmetric=true", "network.own_target=true"]
    state, naive, options = begun([*sets, "network.predictor=Projector(d=4)"])
    x1, x2 = crops()[:2]
    take_step(state, state.networks, (x1, x2, None), options, 1)
    net = naive.networks
    z = net.project(net.encode(torch.cat([x1, x2])))
    (p1, p2), (z1, z2) = net.predictor(z).chunk(2), z.detach().chunk(2)
    stepped(naive, objective(p1, z2) + objective(p2, z1))
    same(state.networks, net)


@pytest.mark.parametrize("size", [8, 4])
def test_a_network_that_is_its_own_target_fills_a_queue(size):
    sets = ["objective=InfoNCE(Cosine(tau=0.1), OtherView(), anchors='first')"]
    sets += ["symmetric=true", "network.own_target=true", f"network.queue={size}"]
    state, _, options = begun(sets)
    x1, x2 = (x.float() for x in crops()[:2])
    state.networks.float()
    with torch.no_grad():
        _, z = copy.deepcopy(state.networks)(x1, x2, projections=True)
    take_step(state, state.networks, (x1, x2, None), options, 1)
    newest = torch.cat([z[1], z[0]])  # twice 6 into 8 places, or into 4
    assert state.oldest == 2 * min(6, size) % size
    for row in newest[-min(6, size) :]:
        assert bool((state.queue - row).abs().max(dim=1).values.min() < 1e-5)


WRONG = {
    "two targets": (
        ["network.own_target=true", "network.momentum=0.9"],
        "received 0.9. The target is either",
    ),
    "micro": (
        ["network.own_target=true", "micro_batch=2"],
        "received 0.0 and `network.own_target`",
    ),
}


@pytest.mark.parametrize(("sets", "sentence"), WRONG.values(), ids=WRONG)
def test_targets_that_exclude_each_other(sets, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        read_settings("simclr", sets)
    names = {
        "network.own_target=true": {"own_target": True},
        "network.momentum=0.9": {"momentum": 0.9},
    }
    options = {k: v for s in sets for k, v in names.get(s, {"micro_batch": 2}).items()}
    with pytest.raises(InputError, match="`own_target` needs"):
        FitOptions(**options)


def test_crops_in_micro_batches_are_the_plain_step():
    sets = ["network.encoder=ViT(size=16, patch=4, d=8, depth=1, heads=2, any_size=True)"]
    state, naive, options = begun(sets)
    x = crops()
    batch = (x[0], Crops(x[1:]), None)
    one = take_step(state, state.networks, batch, options, 1)
    micro = FitOptions(micro_batch=4)
    two = take_step(naive, naive.networks, batch, micro, 1)
    assert float(one) == pytest.approx(float(two), rel=1e-10)
    same(state.networks, naive.networks)


def test_a_vit_takes_other_sizes_when_asked():
    torch.manual_seed(0)
    net = ViT(size=8, patch=2, d=8, depth=1, heads=2, any_size=True)
    assert net(torch.rand(2, 3, 12, 4)).shape == (2, 8)
    same_size = ViT(size=8, patch=2, d=8, depth=1, heads=2)
    same_size.load_state_dict(net.state_dict())
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(net(x), same_size(x))
    with pytest.raises(InputError, match="or multiples of 2; received 7x7"):
        net(torch.rand(1, 3, 7, 7))
    with pytest.raises(InputError, match=re.escape("received 4x4. `any_size=True` resamples")):
        same_size(torch.rand(1, 3, 4, 4))


def test_constant_positions_stay_constant_on_another_grid():
    from chiaroscuro.models.vit import resampled

    positions = torch.arange(3.0).expand(1, 17, 3)
    found = resampled(positions, (7, 2), front=1)
    torch.testing.assert_close(found, torch.arange(3.0).expand(1, 15, 3))


def test_frozen_patches_stay():
    net = ViT(size=8, patch=2, d=8, depth=1, heads=2, frozen_patches=True)
    before = copy.deepcopy(net.state_dict())
    x = torch.rand(16, 3, 8, 8)
    fit(net, InfoNCE(), [(x, x + 0.1 * torch.rand(16, 3, 8, 8))] * 3)
    after = net.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any(name.startswith("patch_embed") for name in moved)
    assert "pos_embed" in moved


def test_a_killed_run_of_crops_goes_on_to_the_same_bits(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (24, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "x.npz", images=images)
    sets = [*SMALL, "epochs=3", f"views.first={CROPS}", f"data.source={tmp_path / 'x.npz'}"]
    sets += ["objective=BYOL()", "network.momentum=0.9", "schedule.warmup=0", "saving.every=5"]
    settings = read_settings("simclr", [*sets, "network.predictor=Projector(d=4)"])
    whole = train(settings, tmp_path / "whole")
    cut = train(settings, tmp_path / "cut")
    newest = sorted(cut.checkpoints.iterdir())[-1]
    newest.rename(tmp_path / "lost")
    train(settings, tmp_path / "cut", resume=True)
    one, two = (checkpoints.latest_good(r.checkpoints).checkpoint for r in (whole, cut))
    assert one.step == two.step == 12
    assert all(a.tobytes() == two.arrays[name].tobytes() for name, a in one.arrays.items())


# ---- planted mistakes: each is caught by the transcription named beside it ----

PLANTED = {
    "a crop against itself": (step, "_of_crops", " if v != i", "", "crops"),
    "one target of two": (step, "_of_crops", "range(len(targets))", "range(1)", "crops"),
    "sum for mean": (step, "_of_crops", ".mean()", ".sum()", "crops"),
    "large crops do not learn": (
        step, "_pair_or_crops", "z, z[:2]", "z, [t.detach() for t in z[:2]]", "crops",
    ),
    "the fast network for the slow one": (
        step, "_against_target", "target: Any = state.target.module",
        "target: Any = state.networks", "slow",
    ),
    "targets exchanged": (step, "_against_target", "keys[::-1]", "keys", "slow"),
    "the slow copy stands still": (step, "_follow", "momentum)\n", "1.0)\n", "slow"),
    "the slow copy jumps": (Momentum, "update", "1 - m)", "m)", "slow"),
    "gradient into the target": (
        step, "_against_target", "z[1].detach(), z[0].detach()", "z[1], z[0]", "constants",
    ),
    "views not exchanged": (
        step, "_against_target", "z[1].detach(), z[0].detach()", "z[0].detach(), z[1].detach()",
        "own",
    ),
    "predictions as targets": (
        Networks, "forward", "return p, z.split(sizes)", "return p, p", "own",
    ),
    "one direction of two": (step, "_against_target", "spreads[0].loss + ", "", "own"),
    "one view in the queue": (
        step, "_against_target", "for spread in spreads", "for spread in spreads[:1]", "queue",
    ),
    "the oldest keys kept": (step, "_enqueue", "keys[-size:]", "keys[:size]", "short queue"),
    "the queue begins anew": (step, "_enqueue", "state.oldest + len(keys)", "len(keys)", "queue"),
    "a crop in another's place": (
        Networks, "_encode_by_size", "for v in range(len(views))", "for v in h", "shared",
    ),
    "a crop of the first group": (
        MultiCrop, "__call__", "self.member(view)", "self.member(0)", "view",
    ),
    "crops that are alike": (MultiCrop, "__call__", "epoch, view)", "epoch, 0)", "view"),
}  # fmt: skip
CAUGHT_BY = {
    "crops": test_the_loss_of_crops_is_the_mean_over_crops_and_targets,
    "slow": test_crops_against_a_slow_copy,
    "own": test_the_network_as_its_own_target_is_simsiam,
    "constants": test_targets_are_constants,
    "queue": lambda: test_a_network_that_is_its_own_target_fills_a_queue(8),
    "short queue": lambda: test_a_network_that_is_its_own_target_fills_a_queue(4),
    "shared": test_crops_of_one_size_share_a_batch_and_all_share_the_projector,
    "view": test_a_crop_is_a_view_of_its_group,
}


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_mistake_is_caught(name, monkeypatch):
    holder, function, right, wrong, check = PLANTED[name]
    with monkeypatch.context() as patch:
        plant(patch, holder, function, right, wrong)
        with pytest.raises(AssertionError):
            CAUGHT_BY[check]()
