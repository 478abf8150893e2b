"""Every model: shapes, notation, counts of the known architectures, gradients, sentences."""

import inspect

import pytest
import torch
from torch import nn

import chiaroscuro.models as models
from chiaroscuro.dynamics.capture import plain_attention
from chiaroscuro.errors import InputError
from chiaroscuro.models import (
    MLP,
    Adapter,
    Model,
    Momentum,
    Projector,
    Prototypes,
    ResNet,
    SequenceTransformer,
    SeriesNet,
    Table,
    ViT,
    describe,
)
from chiaroscuro.spec import notation, parse

NAMES = {name: getattr(models, name) for name in models.__all__}
EACH = [
    MLP(6, d=4, depth=3, width=8),
    MLP(6, d=4, depth=1),
    MLP(6, d=4, depth=4, width=8, activation="tanh", normalisation="batch", init="orthogonal"),
    MLP(6, d=4, depth=2, width=8, activation="leaky_relu", normalisation="layer", init="torch"),
    ResNet(9, width=0.25, stem="strided"),
    ResNet(9, width=0.5, stem="strided", channels=1),
    ResNet(18, width=0.125),
    ResNet(34, width=1 / 16),
    ResNet(50, width=1 / 16, stem="large"),
    ViT(size=16, patch=8, d=12, depth=2),
    ViT(size=16, patch=4, d=12, depth=1, heads=2, channels=1, pool="mean"),
    SequenceTransformer(9, length=5, d=12, depth=1, heads=2),
    SequenceTransformer(9, length=5, d=12, depth=2, heads=2, pool="cls", padding=0),
    SequenceTransformer(9, length=5, d=12, depth=1, heads=2, padding=8, dropout=0.5),
    SeriesNet(channels=2, d=6, width=8, depth=2),
    SeriesNet(d=6, width=8, depth=1, kernel=3, stride=2),
    Table(10, d=4),
    Projector(8),
    Projector(8, d=4, depth=1, last="none"),
    Projector(8, d=None, depth=0),
    Projector(8, d=None, depth=0, last="unit"),
    Projector(8, d=4, depth=3, width=16, batch_norm=False, last="unit"),
    Prototypes(8, d=6, bottleneck=4),
    Prototypes(8, d=6, bottleneck=4, depth=3, width=5, activation="gelu", batch_norm=False),
    Prototypes(8, d=3, bottleneck=8, depth=1),
    ViT(size=16, patch=8, d=12, depth=1, any_size=True, frozen_patches=True),
]
each = pytest.mark.parametrize("model", EACH, ids=repr)


def batch(model: Model, n: int = 5) -> torch.Tensor:
    """n different samples of the kind the model takes."""
    x = model.example(n)
    torch.manual_seed(0)
    if x.is_floating_point():
        return torch.randn_like(x)
    high = model.n_symbols if isinstance(model, Table) else model.n_tokens
    x = torch.randint(1, high - 1, x.shape)
    return x % high


def rebuilt(model: Model, seed: int) -> Model:
    torch.manual_seed(seed)
    return parse(repr(model), NAMES)


# ---- laws of every model ----


def test_every_exported_model_is_tried():
    classes = {c for c in NAMES.values() if inspect.isclass(c) and issubclass(c, Model)}
    assert classes - {Model, Adapter} == {type(model) for model in EACH}


@each
def test_its_notation_is_its_architecture(model):
    again = rebuilt(model, 0)
    assert again == model
    assert repr(again) == repr(model)
    assert {k: v.shape for k, v in again.state_dict().items()} == {
        k: v.shape for k, v in model.state_dict().items()
    }


@each
def test_it_gives_n_vectors_of_d(model):
    for n in (2, 5):
        assert rebuilt(model, 0)(batch(model, n)).shape == (n, model.d)


@each
def test_one_seed_is_one_model(model):
    a, b, c = (rebuilt(model, seed) for seed in (1, 1, 2))
    same = [torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True)]
    assert all(same)
    if any(p.ndim > 1 for p in a.parameters()):
        x = batch(model)
        assert not torch.equal(a.eval()(x), c.eval()(x))


@each
def test_in_evaluation_samples_do_not_meet(model):
    model = rebuilt(model, 0)
    x = batch(model)
    model(x)  # the running statistics are no longer those of the start
    model.eval()
    together, alone = model(x), torch.cat([model(x[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert model(x[:0]).shape == (0, model.d)


@each
def test_the_gradient_reaches_every_parameter(model):
    model = rebuilt(model, 0)
    x = batch(model, 8)
    if not list(model.parameters()):
        assert torch.equal(rebuilt(model, 1)(x), model(x)), "it has nothing to learn"
        return
    (model(x) ** 3).sum().backward()
    for name, p in ((name, p) for name, p in model.named_parameters() if p.requires_grad):
        assert p.grad is not None, name
        assert torch.isfinite(p.grad).all(), name
        assert p.grad.abs().max() > 0, name


@each
def test_the_state_comes_back(model):
    a, b = rebuilt(model, 1), rebuilt(model, 2)
    b.load_state_dict(a.state_dict())
    x = batch(model)
    assert torch.equal(a.eval()(x), b.eval()(x))


@pytest.mark.parametrize("model", [m for m in EACH if isinstance(m, ResNet | ViT)], ids=repr)
def test_channels_last_gives_the_same(model):
    model = rebuilt(model, 0).eval()
    x = batch(model)
    plain = model(x)
    last = model.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(plain, last, rtol=1e-4, atol=1e-5)


@each
def test_the_scale_at_the_start_is_sensible(model):
    """Neither vanishing nor exploding: the output has a variance within a factor of 100 of 1."""
    h = rebuilt(model, 0)(batch(model, 64))
    assert 0.01 < h.square().mean() < 100


# ---- the known architectures ----


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("model", "parameters", "d"),
    [
        # torchvision's counts less those of the classifier of 1000 classes, d * 1000 + 1000
        ("ResNet(18, stem='large')", 11_689_512 - 513_000, 512),
        ("ResNet(34, stem='large')", 21_797_672 - 513_000, 512),
        ("ResNet(50, stem='large')", 23_508_032, 2048),
        # the usual networks for CIFAR-10 less their classifier of 10 classes
        ("ResNet(18)", 11_173_962 - 5_130, 512),
        ("ResNet(34)", 21_282_122 - 5_130, 512),
        ("ResNet(50)", 23_520_842 - 20_490, 2048),
        # ViT-Tiny/16 at 224 pixels less its classifier
        ("ViT(size=224, patch=16)", 5_717_416 - 193_000, 192),
    ],
)
def test_the_known_architectures_have_their_counts(model, parameters, d):
    with torch.device("meta"):
        net = parse(model, NAMES)
    assert (count(net), net.d) == (parameters, d)


def by_hand(widths: list[int], channels: int, blocks: int) -> int:
    """Parameters of a net of basic blocks: 3x3 convolutions and two numbers per BatchNorm."""
    total, before = 9 * channels * widths[0] + 2 * widths[0], widths[0]
    for width in widths:
        for _ in range(blocks):
            total += 9 * before * width + 2 * width + 9 * width * width + 2 * width
            total += (before * width + 2 * width) * (before != width)
            before = width
    return total


@pytest.mark.parametrize("width", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("stem", ["small", "strided"])
def test_the_small_net_has_its_count(width, stem):
    widths = [int(64 * width * 2**stage) for stage in range(4)]
    net = ResNet(9, width=width, stem=stem, channels=1)
    assert count(net) == by_hand(widths, 1, 1)
    assert net.d == widths[-1]
    assert sum(isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) for m in net.modules()) == 9


def test_operations_of_the_known_architectures():
    # multiply-adds as published: 0.56 G at 32 pixels, 1.81 G at 224 with the classifier's 0.5 M
    assert describe(ResNet(18)).flops / 2e9 == pytest.approx(0.5556, abs=1e-3)
    assert describe(ResNet(18, stem="large")).flops / 2e9 == pytest.approx(1.814, abs=2e-3)
    assert describe(ViT(size=224, patch=16)).flops / 2e9 == pytest.approx(1.254, abs=2e-3)


def test_operations_by_hand():
    about = describe(MLP(10, d=4, depth=2, width=7))
    assert about.flops == 2 * (10 * 7 + 7 * 4)
    assert (about.n_parameters, about.n_trainable, about.d) == (10 * 7 + 7 + 7 * 4 + 4, 109, 4)
    conv = nn.Conv2d(2, 6, 3, groups=2)
    assert describe(conv, torch.zeros(5, 2, 8, 8)).flops == 2 * 6 * 36 * 9
    t, d = 5, 12
    block = SequenceTransformer(9, length=t, d=d, depth=1, heads=2)
    assert describe(block).flops == 2 * (12 * t * d * d + 2 * t * t * d)


def test_describing_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout().eval(), nn.Linear(3, 2))
    model[2].weight.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    about = describe(model, torch.randn(4, 3))
    assert (about.n_parameters, about.n_trainable) == (14, 8)
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    with pytest.raises(InputError, match="needs a batch `x` for a `Linear`"):
        describe(nn.Linear(2, 2))
    with pytest.raises(InputError, match="received 0"):
        describe(nn.Linear(2, 2), torch.zeros(0, 2))


# ---- initialisation ----


def test_orthogonal_keeps_lengths_and_zero_init_is_the_identity():
    deep = MLP(32, d=32, depth=1, init="orthogonal")
    x = torch.randn(10, 32)
    torch.testing.assert_close(deep(x).norm(dim=1), x.norm(dim=1))
    torch.manual_seed(0)
    net = ResNet(18, width=0.125, zero_init=True).eval()
    block, y = net.layer1[0], torch.rand(2, 8, 4, 4)
    assert torch.equal(block(y), y)
    assert not torch.equal(ResNet(18, width=0.125).eval().layer1[0](y), y)


def test_a_deep_narrow_net_keeps_its_signal():
    torch.manual_seed(0)
    x = torch.randn(256, 16)
    for init in ("he", "orthogonal"):
        h = MLP(16, d=16, depth=20, width=64, init=init)(x)
        assert 0.05 < h.std() < 20
    assert MLP(16, d=16, depth=20, width=64, init="torch")(x).std(dim=0).max() < 0.05


# ---- relations ----


def test_a_table_is_a_linear_map_of_one_hot_rows():
    table, linear = Table(7, d=3), MLP(7, d=3, depth=1)
    with torch.no_grad():
        linear.layers[0].weight.copy_(table.weight.T)
        linear.layers[0].bias.zero_()
    symbols = torch.tensor([0, 6, 3])
    torch.testing.assert_close(table(symbols), linear(nn.functional.one_hot(symbols, 7).float()))


def test_a_linear_projector_is_a_linear_mlp():
    projector, mlp = Projector(5, d=3, depth=1, last="none"), MLP(5, d=3, depth=1)
    mlp.layers.load_state_dict(projector.layers.state_dict())
    h = torch.randn(4, 5)
    assert torch.equal(projector(h), mlp(h))


def test_the_last_step_of_a_projector():
    h = torch.randn(64, 8) * 5 + 3
    z = Projector(8, d=4)(h)
    torch.testing.assert_close(z.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(z.var(0, correction=0), torch.ones(4), atol=1e-3, rtol=0)
    z = Projector(8, d=4, last="unit")(h)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(64))
    assert torch.equal(Projector(8, d=None, depth=0, last="none")(h), h)
    assert not Projector(8).standard.affine
    assert Projector(8).d == 128
    assert Projector(8, d=None).d == 8


def test_standardised_dimensions_do_not_start_in_a_cone():
    """All cosines near 1 is where a small net may stay; the last BatchNorm starts elsewhere."""
    h = torch.randn(64, 32) * 0.1 + 3
    cosines = {}
    for last in ("none", "standardise"):
        torch.manual_seed(0)
        z = Projector(32, d=16, batch_norm=False, last=last)(h).detach()
        u = z / z.norm(dim=1, keepdim=True)
        cosines[last] = float((u @ u.T).mean())
    assert cosines["none"] > 0.9
    assert abs(cosines["standardise"]) < 0.1


def test_padding_changes_nothing():
    for pool in ("mean", "cls"):
        torch.manual_seed(0)
        net = SequenceTransformer(9, length=8, d=12, heads=2, pool=pool, padding=0).eval()
        short, long = torch.tensor([[3, 5, 2]]), torch.tensor([[3, 5, 2, 0, 0, 0]])
        torch.testing.assert_close(net(short), net(long))
        torch.testing.assert_close(net(short), net(torch.tensor([[3, 5, 2, 7]]), _mask(3, 4)))
        assert not torch.allclose(net(short), net(short.flip(1))), "positions count"
        assert torch.equal(net(short.int()), net(short))


def _mask(real: int, length: int) -> torch.Tensor:
    return (torch.arange(length) < real)[None]


# ---- sentences ----

z = torch.zeros
SENTENCES = {
    "channels": (lambda: ResNet(9, 0.25)(z(2, 1, 32, 32)), r"3 channels.*\(2, 1, 32, 32\).*has 1"),
    "channels last": (lambda: ResNet(9, 0.25)(z(2, 32, 32, 3)), "permute"),
    "bytes": (lambda: ResNet(9, 0.25)(z(2, 3, 32, 32, dtype=torch.uint8)), "uint8. Divide by 255"),
    "one image": (lambda: ResNet(9, 0.25)(z(3, 32, 32)), r"received \(3, 32, 32\)"),
    "no tensor": (lambda: ViT()([1]), "received list"),
    "too small": (lambda: ResNet(9, 0.25)(z(2, 3, 7, 32)), "at least 8x8 pixels; received 7x32"),
    "for the stem": (lambda: ResNet(9, 0.25, stem="large")(z(2, 3, 28, 28)), "32x32.*28x28.*small"),
    "one value": (lambda: ResNet(9, 0.25)(z(1, 3, 8, 8)), "1 image of 8x8"),
    "depth": (lambda: ResNet(17), "`9`, `18`, `34`, `50`; received `17`"),
    "stem": (lambda: ResNet(stem="tiny"), "'small'.*'tiny'"),
    "width": (lambda: ResNet(width=0.01), "width=0.01"),
    "no channels": (lambda: ResNet(channels=0), "channels=0"),
    "an even kernel": (lambda: SeriesNet(kernel=4), "kernel=4.*odd"),
    "time first": (lambda: SeriesNet(3)(z(2, 50, 3)), "transpose"),
    "a short series": (lambda: SeriesNet(1, depth=3)(z(2, 1, 7)), "at least 8 places; received 7"),
    "tokens": (lambda: SeriesNet(1)(z(2, 1, 9, dtype=torch.long)), r"\(2, 1, 9\)"),
    "activation": (lambda: MLP(3, activation="sin"), "'relu'.*'sin'"),
    "layers": (lambda: MLP(3, depth=0), "depth=0"),
    "numbers": (lambda: MLP(3)(z(2, 4)), r"3 numbers per sample; received \(2, 4\), which has 4"),
    "integers": (lambda: MLP(3)(z(2, 3, dtype=torch.long)), "int64"),
    "a batch of one": (lambda: Projector(3)(z(1, 3)), "at least 2 samples.*received 1"),
    "and in an mlp": (lambda: MLP(3, normalisation="batch")(z(1, 3)), "at least 2 samples"),
    "identity": (lambda: Projector(8, d=4, depth=0), "`d == d_in`; received 4 and 8"),
    "last": (lambda: Projector(8, last="norm"), "'standardise'.*'norm'"),
    "negative": (lambda: Projector(8, depth=-1), "depth=-1"),
    "h": (lambda: Projector(8)(z(4, 7)), r"d_in=8.*\(4, 7\)"),
    "patches": (lambda: ViT(size=30, patch=4), r"30 = 4 \* 7 \+ 2"),
    "heads": (lambda: ViT(d=100), r"100 = 3 \* 33 \+ 1"),
    "another size": (lambda: ViT(size=16)(z(2, 3, 32, 32)), "16x16 pixels.*received 32x32"),
    "too long": (lambda: SequenceTransformer(9, length=4)(z(2, 5).long()), "1 to 4.*received 5"),
    "a token": (lambda: SequenceTransformer(9)(z(2, 5).long() + 9), "0 to 8; received 9 to 9"),
    "floats": (lambda: SequenceTransformer(9)(z(2, 5)), r"float32 of shape \(2, 5\)"),
    "empty": (lambda: SequenceTransformer(9, padding=0)(z(2, 5).long()), "2 of 2.*row 0"),
    "a mask": (lambda: SequenceTransformer(9)(z(2, 5).long(), z(2, 5)), r"boolean mask \(2, 5\)"),
    "padding": (lambda: SequenceTransformer(9, padding=9), "from 0 to 8"),
    "dropout": (lambda: SequenceTransformer(9, dropout=1.0), "dropout=1.0"),
    "a symbol": (lambda: Table(4)(torch.tensor([0, 4])), "from 0 to 3; received 0 to 4"),
    "no symbol": (lambda: Table(4)(torch.tensor([0.5])), "float32"),
    "scale": (lambda: Table(4, scale=-1), "received `-1`"),
    "m": (lambda: Momentum(Table(4)).update(Table(4), m=1.5), "m=1.5"),
}


@pytest.mark.parametrize(("call", "words"), SENTENCES.values(), ids=SENTENCES)
def test_a_wrong_call_is_a_sentence(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_the_notation_of_each_default():
    assert notation(ResNet()) == (
        "ResNet(depth=18, width=1.0, channels=3, stem='small', zero_init=False, stages=1)"
    )
    assert notation(Projector(512)) == (
        "Projector(d_in=512, d=128, depth=2, batch_norm=True, last='standardise')"
    )


def test_stages_stand_side_by_side_and_the_last_is_the_usual_network():
    torch.manual_seed(0)
    one = ResNet(depth=9, width=0.125, stem="strided").eval()
    three = ResNet(depth=9, width=0.125, stem="strided", stages=3).eval()
    three.load_state_dict(one.state_dict())
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        h = three(x)
        c = one.layer2(one.layer1(torch.relu(one.bn1(one.conv1(x)))))
    assert h.shape == (2, three.d) == (2, 16 + 32 + 64)
    torch.testing.assert_close(h[:, -64:], one(x))
    torch.testing.assert_close(h[:, :16], c.mean((2, 3)))
    with pytest.raises(InputError, match="needs 1, 2, 3 or 4"):
        ResNet(stages=5)


def test_a_sequence_goes_through_vmap():
    torch.manual_seed(0)
    net = SequenceTransformer(n_tokens=9, length=5, d=8, depth=1, heads=2, padding=0).eval()
    x = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 6]])
    with plain_attention():
        alone = torch.func.vmap(lambda row: net(row[None])[0])(x)
    torch.testing.assert_close(alone, net(x))


def test_the_neural_kernel_of_a_sequence_is_that_of_its_gradients():
    from chiaroscuro.dynamics import neural_kernel

    torch.manual_seed(0)
    net = SequenceTransformer(n_tokens=9, length=5, d=4, depth=1, heads=2, padding=0).eval()
    x = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 6]])
    rows = []
    for out in net(x).reshape(-1):
        found = torch.autograd.grad(out, net.parameters(), retain_graph=True, allow_unused=True)
        rows.append(torch.cat([g.reshape(-1) for g in found if g is not None]))
    J = torch.stack(rows)
    K = neural_kernel(net, x).permute(0, 2, 1, 3).reshape(8, 8)
    torch.testing.assert_close(K, J @ J.T, rtol=1e-4, atol=1e-5)


def test_a_series_is_encoded_alike_at_any_length_and_place():
    """The mean over time of a periodic signal does not depend on where the window begins."""
    torch.manual_seed(0)
    net = SeriesNet(d=4, width=8, depth=2, kernel=3).double().eval()
    wave = torch.sin(torch.arange(1600, dtype=torch.float64) * (2 * torch.pi / 16))
    one, other = (net(wave[None, None, start : start + 1280]) for start in (0, 64))
    assert torch.allclose(one, other, atol=1e-12)
    assert torch.equal(net(wave[None]), net(wave[None, None]))


def test_prototypes_are_cosines():
    """Whatever the length of the prototypes and of what comes out of the layers."""
    torch.manual_seed(0)
    head = Prototypes(8, d=6, bottleneck=4, batch_norm=False).double()
    h = torch.randn(5, 8, dtype=torch.float64)
    u = head.layers(h)
    right = torch.nn.functional.cosine_similarity(u[:, None], head.prototypes[None], dim=2)
    torch.testing.assert_close(head(h), right)
    with torch.no_grad():
        head.prototypes.mul_(torch.arange(1, 7)[:, None])
    torch.testing.assert_close(head(h), right)
