"""Gloo ranks on this machine: gradients, values and refusals of a batch spread over them.

One set of processes per world size runs everything; each rank compares what it got with the
single-process loss on the whole batch and sends back one line for each thing that is wrong.
"""

import copy
import queue as queues
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from chiaroscuro.engine import (
    average_gradients,
    barrier,
    cached_backward,
    distributed_loss,
    gather_rows,
    is_first,
    on_any_rank,
    on_every_rank,
    rank,
    share_buffers,
    synchronised,
    world_size,
)
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.kernels import Concat, Cosine, Dot, Gaussian, Laplace, Learnable, Sum
from chiaroscuro.objectives import (
    BYOL,
    DINO,
    NNCLR,
    AlignUniform,
    BarlowTwins,
    Debiased,
    Generalised,
    Grouped,
    InfoNCE,
    Matryoshka,
    Objective,
    OnDims,
    SigLIP,
    SimSiam,
    SpectralContrastive,
    SupCon,
    SwAV,
    VICReg,
    Weighted,
)
from chiaroscuro.pairwise import AllButPair, AllButSelf, OnlyPositive, OtherView, SameView
from forked import CONTEXT

D_IN, D = 6, 4
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
COUNTS = {
    1: [(9,)],
    2: [(5, 3), (0, 8)],
    3: [(5, 3, 1), (4, 0, 6)],
    4: [(5, 3, 1, 7), (6, 2, 0, 5)],
}
SECONDS = 120
"""A rank that is not done by then hangs."""

CASES: dict[str, Callable[[], Objective]] = {
    **{
        f"InfoNCE {type(negatives).__name__} {anchors}": (
            lambda negatives=negatives, anchors=anchors: InfoNCE(Cosine(0.5), negatives, anchors)
        )
        for negatives in (AllButSelf(), AllButPair(), OtherView(), SameView())
        for anchors in ("both", "first")
    },
    "InfoNCE queue": lambda: InfoNCE(Gaussian(tau=0.7)),
    "InfoNCE queue, learnable": lambda: InfoNCE(Cosine(Learnable(0.3)), OtherView(), "first"),
    "InfoNCE queue, only the positive": lambda: InfoNCE(Cosine(0.3), OnlyPositive(), "first"),
    "InfoNCE learnable": lambda: InfoNCE(Cosine(Learnable(0.3, least=0.01))),
    "InfoNCE learnable per dimension": lambda: InfoNCE(Gaussian(Learnable([0.4, 0.5, 0.6, 0.7]))),
    "InfoNCE sum": lambda: InfoNCE(Sum(Gaussian(0.5), Laplace(Learnable(0.8)), weights=(1, 2))),
    "InfoNCE concat": lambda: InfoNCE(Concat(Gaussian(0.5), Laplace(0.5)), AllButPair()),
    "SupCon": lambda: SupCon(Cosine(Learnable(0.2))),
    "SupCon one view": lambda: SupCon(Gaussian(0.5)),
    "OnDims": lambda: OnDims(InfoNCE(Dot(Learnable(1.0))), 1, 3),
    "OnDims of samples": lambda: OnDims(BYOL(), 1, 3),
    "Weighted anchors": lambda: Weighted(
        (0.8, InfoNCE(Laplace(0.5))), (0.2, InfoNCE(Gaussian(Learnable(0.5))))
    ),
    "Weighted mixture": lambda: Weighted((0.7, InfoNCE(Cosine(Learnable(0.5)))), (0.1, VICReg())),
    "Generalised": lambda: Generalised("log1p", Gaussian(Learnable(0.5))),
    "Generalised by functions": lambda: Generalised(torch.sqrt, lambda t: 1 / (1 + t)),
    "VICReg": VICReg,
    "BYOL": BYOL,
    "BarlowTwins": BarlowTwins,
    "SpectralContrastive": SpectralContrastive,
    "AlignUniform": AlignUniform,
    "SigLIP": lambda: SigLIP(Cosine(Learnable(0.3)), bias=-1.0),
    "SigLIP, groups": lambda: Grouped(SigLIP(Cosine(0.3), bias=-1.0)),
    "InfoNCE, groups": lambda: Grouped(InfoNCE(Gaussian(Learnable(0.5)))),
    "Debiased": lambda: Debiased(Cosine(Learnable(0.5)), prior=0.2, beta=0.5),
    "Matryoshka": lambda: Matryoshka(InfoNCE(Cosine(Learnable(0.5))), (2, 4)),
    "NNCLR queue": NNCLR,
    "SimSiam": SimSiam,
    "DINO": DINO,
    "DINO sinkhorn": lambda: DINO(centring="sinkhorn"),
    "SwAV": SwAV,
}


# ---- a batch, an encoder, and the truth about them ----


def encoder(dtype: torch.dtype) -> nn.Module:
    """The same on every rank."""
    model = nn.Sequential(nn.Linear(D_IN, 8), nn.Tanh(), nn.Linear(8, D)).to(dtype)
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        nn.init.normal_(p, std=0.4, generator=generator)
    return model


class Batch:
    """The whole batch, the same on every rank, and the rows of this one."""

    def __init__(self, case: str, counts: tuple[int, ...], dtype: torch.dtype):
        generator = torch.Generator().manual_seed(2)
        n, me = sum(counts), rank()
        self.x1, self.x2 = torch.randn(2, n, D_IN, dtype=dtype, generator=generator)
        self.labels = torch.arange(n) // 2 % 2 if "SupCon" in case or "groups" in case else None
        self.queue = (
            torch.randn(7, D, dtype=dtype, generator=generator) if "queue" in case else None
        )
        self.views = 1 if "one view" in case else 2
        self.own = slice(sum(counts[:me]), sum(counts[: me + 1]))
        self.mine = [x[self.own] for x in (self.x1, self.x2)][: self.views]
        self.all = [self.x1, self.x2][: self.views]
        self.my_labels = None if self.labels is None else self.labels[self.own]


def whole(batch: Batch, model: nn.Module, objective: Objective) -> Tensor:
    z = [model(x) for x in batch.all]
    return objective(*z, *[None] * (2 - len(z)), batch.labels, batch.queue)


def spread(batch: Batch, model: nn.Module, objective: Objective, **options) -> Tensor:
    z = [model(x) for x in batch.mine]
    z2 = z[1] if len(z) == 2 else None
    return distributed_loss(objective, z[0], z2, batch.my_labels, batch.queue, **options)


def gradients(*modules: nn.Module) -> list[Tensor]:
    parameters = [p for module in modules for p in module.parameters()]
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]


def summed(tensors: list[Tensor], share: float = 1.0) -> list[Tensor]:
    """Added up over ranks, in one message, and multiplied."""
    flat = torch.cat([t.flatten() for t in tensors])
    if dist.is_initialized():
        dist.all_reduce(flat)
    parts = (flat * share).split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def apart(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference, relative to the largest entry of all."""
    size = max(float(t.abs().max()) for t in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / size


def compare(what: str, tolerance: float, loss, ours, truth, theirs) -> Iterator[str]:
    got, true = loss.item(), truth.item()
    if not abs(got - true) <= tolerance * max(1.0, abs(true)):
        yield f"{what}: loss {got!r} for {true!r}"
    if not apart(ours, theirs) <= tolerance:
        yield f"{what}: gradient off by {apart(ours, theirs):.2e} of its size"


# ---- what each rank checks ----


def plans(world: int) -> Iterator[tuple[tuple[int, ...], torch.dtype, str]]:
    """Local batches, dtype and convention; all of them would only repeat these."""
    unequal, with_none = COUNTS[world][0], COUNTS[world][-1]
    yield unequal, torch.float32, "averaged"
    yield unequal, torch.float64, "averaged"
    yield unequal, torch.float64, "summed"
    yield with_none, torch.float64, "averaged"


def check_gradients(world: int) -> Iterator[str]:
    losses = []
    for (counts, dtype, convention), case in product(plans(world), CASES):
        batch, objective, model = (
            Batch(case, counts, dtype),
            CASES[case]().to(dtype),
            encoder(dtype),
        )
        truth = whole(batch, model, objective)
        truth.backward()
        theirs = gradients(model, objective)
        model.zero_grad(), objective.zero_grad()
        loss = spread(batch, model, objective, gradients=convention)
        loss.backward()
        losses.append(loss.item())
        share = 1 / world if convention == "averaged" else 1.0
        ours = summed(gradients(model, objective), share)
        what = f"{case} {counts} {dtype} {convention}"
        yield from compare(what, TOLERANCE[dtype], loss, ours, truth, theirs)
    everyone = gather_rows(torch.tensor(losses, dtype=torch.float64)).view(world, -1)
    if not bool((everyone == everyone[0]).all()):
        yield f"ranks report other losses: {everyone[:, (everyone != everyone[0]).any(dim=0)]}"


def check_data_parallel(world: int) -> Iterator[str]:
    """The encoder in DistributedDataParallel; the temperature beside it; also in micro-batches."""
    for counts in COUNTS[world]:
        for case in ("InfoNCE learnable", "SupCon", "BYOL", "Weighted mixture"):
            batch, objective = Batch(case, counts, torch.float64), CASES[case]().double()
            model = encoder(torch.float64)
            truth = whole(batch, model, objective)
            truth.backward()
            theirs = gradients(model, objective)
            for micro_batch in (None, 1, 2, 100):
                model.zero_grad(), objective.zero_grad()
                parallel = DistributedDataParallel(model) if world > 1 else model
                if micro_batch is None:
                    loss = spread(batch, parallel, objective)
                    loss.backward()
                else:
                    loss = cached_backward(
                        parallel,
                        batch.mine,
                        lambda z1, z2, f=objective, y=batch.my_labels: distributed_loss(
                            f, z1, z2, y
                        ),
                        micro_batch,
                    )
                average_gradients(objective.parameters())
                what = f"DDP {case} {counts} micro-batch {micro_batch}"
                ours = gradients(model, objective)
                yield from compare(what, 1e-12, loss, ours, truth, theirs)


def check_half_precision(world: int) -> Iterator[str]:
    """Half precision travels as it is; its gradient is rounded once, after everything is added."""
    for dtype in (torch.bfloat16, torch.float16):
        batch, objective = Batch("InfoNCE", COUNTS[world][0], torch.float32), InfoNCE(Cosine(0.5))
        z = [x[:, :D].to(dtype) for x in batch.all]
        exact = [w.double().requires_grad_() for w in z]
        truth = objective(*exact)
        truth.backward()
        own = [w[batch.own].requires_grad_() for w in z]
        loss = distributed_loss(objective, *own, gradients="summed")
        loss.backward()
        if abs(loss.item() - truth.item()) > 1e-6 or loss.dtype != torch.float32:
            yield f"{dtype}: loss {loss} for {truth}"
        for ours, theirs in zip(own, exact, strict=True):
            g = theirs.grad[batch.own]
            off = (ours.grad.double() - g).abs() / (g.abs() + 1e-4)
            if ours.grad.dtype != dtype or float(off.max()) > 0.51 * torch.finfo(dtype).eps:
                yield f"{dtype}: gradient off by {float(off.max()):.2e} of its size"


def check_unlike_views(world: int) -> Iterator[str]:
    """A frozen second view, views of two dtypes, a queue that learns, a rank without a graph."""
    counts = COUNTS[world][-1]
    batch, objective = Batch("queue", counts, torch.float64), InfoNCE(Gaussian(0.7))
    z1, z2, queue = batch.x1[:, :D].clone(), batch.x2[:, :D].float(), batch.queue
    z1.requires_grad_(), queue.requires_grad_()
    truth = objective(z1, z2, queue=queue)
    g1, g_queue = torch.autograd.grad(truth, [z1, queue])
    empty = batch.own.start == batch.own.stop
    mine = z1[batch.own].detach().requires_grad_(not empty)
    loss = distributed_loss(objective, mine, z2[batch.own], queue=queue, gradients="summed")
    loss.backward()
    yield from compare("queue", 1e-12, loss, summed([queue.grad]), truth, [g_queue])
    if not empty:
        yield from compare("one view frozen", 1e-12, loss, [mine.grad], truth, [g1[batch.own]])
    with torch.no_grad():
        again = distributed_loss(objective, mine, z2[batch.own], queue=queue)
    if again.requires_grad or again.item() != loss.item():
        yield f"without gradients: {again} for {loss}"


def check_refusals(world: int) -> Iterator[str]:
    """Wrong input on the last rank raises the same sentence everywhere; afterwards all is well."""
    wrong, n = world - 1, 3
    here = rank() == wrong

    def call(objective=None, z1=None, z2=None, labels=None, queue=None, grad=True):
        z = torch.ones(n, D, requires_grad=grad)
        z1, z2 = z if z1 is None else z1, z if z2 is None else z2
        return distributed_loss(objective or InfoNCE(), z1, z2, labels, queue)

    nan = torch.ones(n, D, requires_grad=True) * torch.tensor([[1.0], [float("nan")], [1.0]])
    tau = InfoNCE(Cosine(Learnable(0.1, log_ratio=0.25 if here else 0.0)))
    learnt = torch.ones(5 if here else 4, D)
    labels = torch.arange(n)
    on = f"On rank {wrong} of {world}: "
    attempts: dict[str, tuple[dict, list[str]]] = {
        "nan": ({"z1": nan} if here else {}, [on, "1 of 3 rows of `z1`", "row 1"]),
        "nan in samples": (
            {"objective": BYOL(), **({"z2": nan} if here else {})},
            [on, "1 of 3 rows of `z2`", "row 1"],
        ),
        "nan in queue": (
            {"queue": torch.full((2, D), float("nan") if here else 1.0)},
            [on, "`queue`", "row 0"],
        ),
        "unpaired": ({"z2": torch.ones(n + 1, D)} if here else {}, [on, "(3, 4)", "(4, 4)"]),
        "integers": ({"z1": torch.ones(n, D).long()} if here else {}, [on, "torch.int64"]),
        "not a tensor": ({"z1": [1.0]} if here else {}, [on, "list"]),
        "three axes": ({"z1": torch.ones(n, D, 1)} if here else {}, [on, "(3, 4, 1)"]),
        "dimension": (
            dict.fromkeys(("z1", "z2"), torch.ones(n, D + 2 * here, requires_grad=True)),
            ["the dimension", "4 on rank", f"6 on rank {wrong}"],
        ),
        "dtype": (
            {"z1": torch.ones(n, D, dtype=torch.float64 if here else None, requires_grad=True)},
            ["dtype of `z1`", f"float64 on rank {wrong}"],
        ),
        "labels here only": (
            {"objective": SupCon(), "labels": labels if here else None},
            ["`labels`", f"True on rank {wrong}"],
        ),
        "labels too many": (
            {"objective": SupCon(), "labels": torch.arange(n + 2 * here)},
            [on, "each of 3 pairs", "(5,)"],
        ),
        "labels are real": (
            {"objective": SupCon(), "labels": labels.float() if here else labels},
            [on, "torch.float32"],
        ),
        "queue": ({"queue": learnt}, ["the queue", "4 rows on rank", f"5 rows on rank {wrong}"]),
        "frozen here": (
            {"z1": torch.ones(n, D, requires_grad=not here)},
            ["`z1.requires_grad`", f"False on rank {wrong}"],
        ),
        "drifted": ({"objective": tau}, ["0.25 on rank", "average_gradients"]),
        # the same on every rank: no rank is named
        "no labels": ({"objective": SupCon()}, ["`SupCon(z1, z2, labels)` needs labels"]),
        "labels unwanted": ({"labels": labels}, ["needs no `labels`"]),
        "labels unwanted by samples": (
            {"objective": BYOL(), "labels": labels},
            ["needs no `labels`"],
        ),
        "empty": (
            dict.fromkeys(("z1", "z2"), torch.ones(0, D, requires_grad=True)),
            ["at least 1 pair", "received 0"],
        ),
        "empty samples": (
            {"objective": BYOL(), **dict.fromkeys(("z1", "z2"), torch.ones(0, D))},
            ["at least 1 pair", "received 0"],
        ),
        "an option": ({"objective": OnDims(InfoNCE(), 0, 9)}, ["at least 9", "received 4"]),
    }
    for name, (arguments, words) in attempts.items():
        try:
            call(**arguments)
        except InputError as error:
            sentence = str(error)
        else:
            sentence = "nothing raised"
        if not all(word in sentence for word in words):
            yield f"{name}: {sentence}"
        everyone = [None] * world
        dist.all_gather_object(everyone, sentence)
        if len(set(everyone)) > 1:
            yield f"{name}: ranks disagree, {everyone}"
    with torch.no_grad() if here else nullcontext():
        try:
            call()
        except InputError as error:
            if f"False on rank {wrong}" not in str(error):
                yield f"no_grad: {error}"
        else:
            yield "no_grad on one rank: nothing raised"
    call().backward()


def check_rows_and_buffers(world: int) -> Iterator[str]:
    me = rank()
    if (world_size(), is_first()) != (world, me == 0):
        yield f"world {world_size()}, first {is_first()} on rank {me}"
    barrier()
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int16, torch.bool):
        everyone = [torch.arange(2 * r * 3).reshape(r, 2, 3).to(dtype) for r in range(world)]
        if not torch.equal(gather_rows(everyone[me]), torch.cat(everyone)):
            yield f"gather_rows of {dtype}"
    if gather_rows(torch.full((me,), me)).tolist() != [r for r in range(world) for _ in range(r)]:
        yield "gather_rows of a vector"
    bad = {
        "size of a row": torch.ones(2, 2 + me),
        "int64 on rank 0": torch.ones(2).to(torch.int64 if me == 0 else torch.float32),
        "needs rows": torch.ones(()) if me else torch.ones(1),
    }
    for words, t in bad.items() if world > 1 else ():
        try:
            gather_rows(t)
        except InputError as error:
            if words not in str(error):
                yield f"gather_rows: {error}"
        else:
            yield f"gather_rows: {words} was accepted"
    a, b, c = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    a.grad = torch.full((2,), float(me))
    b.grad = torch.ones(2) if me == 0 else None
    average_gradients([a, b, c])
    means = torch.stack([a.grad, b.grad])[:, 0]
    if c.grad is not None or not torch.allclose(means, torch.tensor([(world - 1) / 2, 1 / world])):
        yield f"average_gradients: {a.grad}, {b.grad}, {c.grad}"
    norm = nn.BatchNorm1d(3)
    norm.running_mean.fill_(me), norm.num_batches_tracked.fill_(7 + me)
    share_buffers(norm)
    if (float(norm.running_mean[0]), int(norm.num_batches_tracked)) != (0.0, 7):
        yield f"share_buffers: {norm.state_dict()}"


def check_cached_batch_norm(world: int) -> Iterator[str]:
    """Buffers after cached steps are those of DistributedDataParallel over the micro-batches."""
    counts = {1: (6,), 2: (6, 4), 3: (6, 4, 2), 4: (6, 4, 2, 8)}[world]
    batch = Batch("InfoNCE", counts, torch.float64)
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(D_IN, D), nn.BatchNorm1d(D)).double()
    wrap = DistributedDataParallel if world > 1 else (lambda m: m)
    cached, plain = wrap(model), wrap(copy.deepcopy(model))
    for _ in range(2):
        cached_backward(cached, batch.mine, InfoNCE(), micro_batch=2)
        z = []
        for x in batch.mine:
            pieces = []
            for i in range(0, len(x), 2):
                last = x is batch.mine[-1] and i + 2 >= len(x)
                with nullcontext() if last or world == 1 else plain.no_sync():
                    pieces.append(plain(x[i : i + 2]))
            z.append(torch.cat(pieces))
        distributed_loss(InfoNCE(), *z).backward()
    if apart(gradients(cached), gradients(plain)) > 1e-12:
        yield f"BatchNorm: gradient off by {apart(gradients(cached), gradients(plain)):.2e}"
    for (name, ours), theirs in zip(cached.named_buffers(), plain.buffers(), strict=True):
        if not torch.allclose(ours, theirs, rtol=1e-12):
            yield f"BatchNorm: {name} is {ours.tolist()} for {theirs.tolist()}"


def check_group(world: int) -> Iterator[str]:
    """A group of some ranks is a world of its own; alone in one, it is the plain objective."""
    some = list(range(1, world))
    group = dist.new_group(some)
    alone = [dist.new_group([r]) for r in range(world)][rank()]
    torch.manual_seed(3)
    z = torch.randn(2, world, D)
    own = [w[rank() : rank() + 1] for w in z]
    objective = InfoNCE(negatives=OtherView())
    if rank() in some:
        loss, truth = distributed_loss(objective, *own, group=group), objective(*z[:, 1:])
        if not torch.allclose(loss, truth):
            yield f"group: {loss} for {truth}"
    loss = distributed_loss(objective, *own, group=alone)
    if not torch.equal(loss, objective(*own)):
        yield f"alone: {loss}"


class Broken(Objective):
    """Has no memory left on one rank, and no such sentence as ours."""

    def __init__(self, where: int):
        super().__init__()
        self.where = where

    def loss(self, batch):
        if rank() == self.where:
            raise RuntimeError("out of memory")
        return batch.z1.sum()


def check_failures(world: int) -> Iterator[str]:
    """Any error of one rank ends the call on all; the rank itself raises its own."""
    where, z = world - 1, torch.ones(3, D)

    def work():
        if rank() == where:
            raise FileNotFoundError("no such file")
        return rank()

    for name, call, kind in (
        ("loss", lambda: distributed_loss(Broken(where), z, z), RuntimeError),
        ("on_every_rank", lambda: on_every_rank(work), FileNotFoundError),
    ):
        try:
            call()
        except (ChiaroError, RuntimeError, OSError) as error:
            right = kind if rank() == where else ChiaroError
            if type(error) is not right or (
                right is ChiaroError and kind.__name__ not in str(error)
            ):
                yield f"{name}: {error!r}"
        else:
            yield f"{name}: nothing raised"
    if on_every_rank(rank) != rank() or not on_any_rank(rank() == where) or on_any_rank(False):
        yield "together or anyone"


def check_batch_norm(world: int) -> Iterator[str]:
    """Statistics, outputs, gradients and running values of the whole batch, on each rank."""
    counts = COUNTS[world][0]
    me, n = rank(), sum(counts)
    generator = torch.Generator().manual_seed(5)
    for shape in ((n, D), (n, D, 3, 2)):
        x = torch.randn(shape, dtype=torch.float64, generator=generator) * 3 + 1
        y = torch.randn(shape, dtype=torch.float64, generator=generator)
        plain = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(D).double()
        with torch.no_grad():
            plain.weight.copy_(torch.arange(1.0, D + 1))
        ours = synchronised(nn.Sequential(copy.deepcopy(plain)))[0]
        whole, own = x.clone().requires_grad_(), x.split(counts)[me].clone().requires_grad_()
        (plain(whole) * y).sum().backward()
        out = ours(own)
        (out * y.split(counts)[me]).sum().backward()
        pairs = {
            "output": (out, plain(x).split(counts)[me]),
            "gradient": (own.grad, whole.grad.split(counts)[me]),
            "weight": (summed([ours.weight.grad])[0], plain.weight.grad),
            "mean": (ours.running_mean, x.mean([0, *range(2, x.ndim)]) * 0.1),
        }
        for name, (found, right) in pairs.items():
            if not torch.allclose(found, right, rtol=1e-10, atol=1e-10):
                yield f"batch norm of {shape}, {name}: {found} for {right}"


CHECKS = [
    check_gradients,
    check_data_parallel,
    check_half_precision,
    check_unlike_views,
    check_rows_and_buffers,
    check_cached_batch_norm,
]
AMONG_SEVERAL = [check_refusals, check_failures, check_batch_norm, check_group]


# ---- starting ranks and not waiting for ever ----


def run_rank(me: int, world: int, store: str, answers) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=me,
        world_size=world,
        timeout=timedelta(seconds=SECONDS / 2),
    )
    wrong = [
        f"rank {me}, {check.__name__}: {line}"
        for check in CHECKS + AMONG_SEVERAL
        for line in check(world)
    ]
    answers.put(wrong)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_agree_with_one_process(world: int, tmp_path: Path):
    answers = CONTEXT.Queue()
    ranks = [
        CONTEXT.Process(target=run_rank, args=(r, world, str(tmp_path / "store"), answers))
        for r in range(world)
    ]
    for process in ranks:
        process.start()
    try:
        wrong = [line for _ in ranks for line in answers.get(timeout=SECONDS)]
        assert wrong == []
        for process in ranks:
            process.join(SECONDS)
        assert [process.exitcode for process in ranks] == [0] * world
    except queues.Empty:
        pytest.fail(f"of {world} ranks some hang or died: {[p.exitcode for p in ranks]}")
    finally:
        for process in ranks:
            process.kill()


@pytest.mark.parametrize("check", CHECKS)
def test_one_process_needs_no_ranks(check):
    assert list(check(1)) == []


def test_one_process_refuses_in_the_words_of_the_objective():
    z = torch.eye(3)
    with pytest.raises(InputError, match="needs finite embeddings"):
        distributed_loss(InfoNCE(), z / 0, z)
    with pytest.raises(InputError, match="needs an objective; received function"):
        distributed_loss(lambda a, b: a, z, z)
    with pytest.raises(InputError, match="received 'mean'"):
        distributed_loss(InfoNCE(), z, z, gradients="mean")


def test_every_objective_is_spread():
    from chiaroscuro import objectives

    classes = {name for name in objectives.__all__ if isinstance(getattr(objectives, name), type)}
    finished = classes - {"Objective"}
    covered = {type(part).__name__ for make in CASES.values() for part in make().modules()}
    assert finished <= covered
    assert {make().reduces for make in CASES.values()} == {"anchors", "batch", "samples"}
