"""Tables of measurements, written from `results/`, so that no number is typed.

The documentation shows all of them; the README a comparison with the alternatives.

python benchmarks/tables.py    rewrites the comparison between its markers in the README
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"


def objective(content: dict) -> str:
    """Time as multiples of the bound, and memory, of one step of each objective."""
    result = content["result"]
    sizes = sorted(result["times"], key=int)
    weights = result["peak growth in MB"]
    counts = sorted(weights["cosine"], key=int)
    lines = [
        "| forward and backward, d = 128 | "
        + " | ".join(f"n = {n}" for n in sizes)
        + " | peak memory, n = "
        + ", ".join(counts)
        + " |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    for name in (
        *(k for k in weights if k not in result["speed-up at 4096"]),
        "lightly",
        "textbook",
    ):
        cells = [f"{result['times'][n][name]['bounds']:.2f} x" for n in sizes]
        memory = ", ".join(f"{weights[name][n]:.0f}" for n in counts if n in weights[name])
        lines.append(f"| {LABELS.get(name, name)} | {' | '.join(cells)} | {memory} MB |")
    faster = result["speed-up at 4096"]
    return "\n".join(
        [
            *lines,
            "",
            f"One column is one run on {content['environment']['threads']} threads of a shared "
            f"{content['environment']['cpu']}, all rows interleaved, best of several; n counts "
            "pairs. Times are multiples of what cannot be avoided, on preallocated memory: two "
            "products of (2n x 2n x d) and one exponential of 2n x 2n (and the roots and further "
            f"exponentials a kernel has). At n = 4096 that makes {faster['lightly']:.1f} times the "
            f"speed of lightly and {faster['textbook']:.1f} times that of the textbook loss; "
            f"65,536 pairs took {result['seconds at 65536']:.0f} s.",
            *_earlier(result),
            f"Command: `{content['command']}`.",
        ]
    )


def _earlier(result: dict) -> list[str]:
    """The ratios to an older source, in a sentence."""
    if "against" not in result:
        return []
    ratios = result["against"]["ratios"]
    each = [
        f"{min(ratios[n].values()):.2f} to {max(ratios[n].values()):.2f} at n = {n}"
        for n in sorted(ratios, key=int)
    ]
    commit = result["against"]["commit"][:7]
    return [f"Of the time of commit `{commit}` a step takes {', '.join(each)}."]


LABELS = {
    "cosine": "`InfoNCE(Cosine(tau=0.5))`",
    "cosine, tau 0.01": "`InfoNCE(Cosine(tau=0.01))`",
    "gaussian per dimension": "`InfoNCE(Gaussian(tau=[...]))`, one per dimension",
    "laplace": "`InfoNCE(Laplace(tau=0.5))`",
    "sum": "`InfoNCE(Sum(Gaussian(...), Laplace(...)))`",
    "cauchy": "`InfoNCE(Cauchy(tau=1.0))`",
    "student t": "`InfoNCE(StudentT(nu=2.0))`",
    "lightly": "lightly NTXentLoss",
    "textbook": "textbook cross-entropy",
}


def parity(content: dict) -> str:
    """What peers return where they leave the formula."""
    result = content["result"]
    names = list(next(iter(result["outside"].values())))
    lines = ["| NT-Xent | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for setting, row in result["outside"].items():
        cells = [x if isinstance(x, str) else f"{x:.4g}" for x in row.values()]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    worst = max(max(row.values()) for row in result["worst disagreement"].values())
    return "\n".join(
        [
            *lines,
            "",
            f"Elsewhere all agree: over {result['cases']} random cases for each of "
            f"{len(result['worst disagreement'])} losses of lightly, pytorch-metric-learning, "
            f"open_clip and torch, values and gradients differ by at most {worst:.0e}.",
            f"Command: `{content['command']}`.",
        ]
    )


def race(content: dict) -> str:
    """Accuracy and speed at equal time, mean and spread over seeds."""
    result = content["result"]
    rows = {
        "raw pixels": [result["controls"]["input"]],
        "the network, untrained": [result["controls"]["untrained"]],
    }
    trained = {
        "lightly's SimCLR": [one["lightly"] for one in result["race"]],
        "ours, same network, data, optimiser and time": [one["ours"] for one in result["race"]],
        "our best recipe": [one["ours"] for one in result["best"]],
    }
    rows |= {name: [one["encoder"] for one in records] for name, records in trained.items()}
    lines = [
        "| CIFAR-10, 10,000 images to train on, 2,000 held out | kNN, k = 20 | linear, ridge "
        "| linear, SGD | steps | images/s | seconds |",
        "|---" * 7 + "|",
    ]
    for name, encoders in rows.items():
        records, probes = trained.get(name), ("knn_20", "linear", "linear_sgd")
        cells = [_percent([one.get(key) for one in encoders]) for key in probes]
        keys = ("steps", "images_per_second", "seconds")
        cells += [f"{_mean([r[key] for r in records]):.0f}" if records else "" for key in keys]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    seeds = len(result["best"])
    last = (
        f"Mean and standard deviation over {len(result['race'])} seeds; of our best recipe {seeds} "
        f"seed{'s' * (seeds != 1)}, and it is the best of three that were measured on these "
        "held-out images, so it flatters; the race's settings were chosen on the training side. "
        f"Other work ran at idle priority. Command: `{content['command']}`."
    )
    return "\n".join([*lines, "", last])


def methods(content: dict) -> str:
    """One line for each method, best kNN first, the controls below."""
    result, names = content["result"], {"input": "raw pixels", "untrained": "untrained network"}
    rows, about = result["summary"], result["about"]
    n = about["rows"] or 10_000
    lines = [
        f"| CIFAR-10, {n:,} images to train on, {n // 5:,} held out | kNN, k = 20 | linear, ridge "
        "| images/s | epochs | memory, MB | rate |",
        "|---" * 7 + "|",
    ]
    shown = {"images_per_second": ".0f", "epochs": ".0f", "memory_mb": ".0f", "lr": "g"}
    for name in sorted(rows, key=lambda one: (one in names, -rows[one].get("knn_20", 0.0))):
        row = rows[name]
        cells = [_spread(row.get(key), row.get(f"{key}_spread")) for key in ("knn_20", "linear")]
        cells += [format(row[key], how) if key in row else "" for key, how in shown.items()]
        fewer = f" ({row['diverged']} of {row['seeds']} diverged)" if row["diverged"] else ""
        lines.append(f"| {names.get(name, name)}{fewer} | {' | '.join(cells)} |")
    threads, jobs = about["threads"], about["jobs"]
    cores = f"{threads} core{'s' * (threads > 1)} each, {jobs} at a time"
    seeds = sorted({row["seeds"] for name, row in rows.items() if name not in names})
    counted = " to ".join(map(str, (seeds[0], seeds[-1])[: len(seeds)])) if seeds else "0"
    last = (
        f"`{about['encoder']}`, {about['seconds']:g} s ({about['clock']}), {cores}; mean and "
        f"standard deviation over seeds ({counted}); the rate, of {about['rates']}, was chosen on "
        "the training side. Images/s count samples, not views; memory is what training adds to "
        f"the process. Command: `{content['command']}`."
    )
    return "\n".join([*lines, "", last])


def _spread(mean: float | None, spread: float | None) -> str:
    if mean is None:
        return "-"
    return f"{100 * mean:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}") + " %"


def cifar(content: dict) -> str:
    """Accuracies of the long training on the official test images."""
    result = content["result"]
    named = {"knn_20": "kNN, k = 20", "knn_200": "kNN, k = 200"}
    named |= {"linear": "linear, ridge", "linear_sgd": "linear, SGD"}
    keys = [key for key in named if key in result["encoder"]]
    lines = [
        "| CIFAR-10, 10,000 test images | " + " | ".join(named[key] for key in keys) + " |",
        "|---" * (len(keys) + 1) + "|",
    ]
    for name, what in (
        ("encoder", f"preset `cifar-long`, images of {result['side']} pixels"),
        ("encoder_as_trained", "the same, images of 24 pixels as its crops"),
        ("untrained", f"before training, images of {result['side']} pixels"),
    ):
        cells = [_spread(result[name].get(key), None) for key in keys]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    last = (
        f"One seed, {len(result['curve'])} epochs of 50,000 images in {result['minutes']:.0f} "
        f"minutes: {result['pairs_per_second']:.0f} pairs a second, "
        f"{result['gflops']:.0f} GFLOP/s of convolutions and linear layers, on two cores beside "
        f"other work. Command: `{content['command']}`."
    )
    return "\n".join([*lines, "", last])


def cifar_lightly(content: dict) -> str:
    """Both sides of the race in turns, after as many seconds each."""
    result, threads = content["result"], content["environment"]["threads"]
    lines = [
        "| the same network, in turns | steps | pairs/s | kNN, k = 20 | linear, ridge |",
        "|---|---|---|---|---|",
    ]
    for name, title in (("ours", "Chiaroscuro"), ("lightly", "lightly")):
        side = result[name]
        scores = [_spread(side["encoder"][key], None) for key in ("knn_20", "linear")]
        cells = [f"{side['curve'][-1]['steps']:,}", f"{side['pairs_per_second']:.0f}", *scores]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    minutes = result["ours"]["curve"][-1]["seconds"] / 60
    last = (
        f"One seed, {minutes:.0f} minutes each in turns of an epoch of ours; on one core with "
        f"{threads} thread{'s' * (threads > 1)}, images of 24 pixels. Command: "
        f"`{content['command']}`."
    )
    return "\n".join([*lines, "", last])


def cifar_shapes(content: dict) -> str:
    """Speed of a training step of each network, in both precisions."""
    lines = [
        "| network | pixels | MFLOP forward | full precision, images/s (GFLOP/s) | bfloat16 |",
        "|---|---|---|---|---|",
    ]
    for row in content["result"]["rows"]:
        speeds = [
            f"{row[p]['images_per_second']:.0f} ({row[p]['gflops']:.0f})"
            for p in ("full", "bfloat16")
        ]
        cells = [str(row["side"]), f"{row['mflop_forward']:.0f}", *speeds]
        lines.append(f"| `{row['network']}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Command: `{content['command']}`."])


def cifar_threads(content: dict) -> str:
    """Pairs a second of the preset by processes and threads."""
    best = content["result"]["pairs_per_second"]
    said = ", ".join(f"{name} {speed:.0f}" for name, speed in best.items())
    return f"Pairs a second of two cores: {said}. Command: `{content['command']}`."


def cifar_pilots(content: dict) -> str:
    """Accuracy of recipes on a part of the training side, by the side of the images."""
    pilots = content["result"]
    sides = list(next(iter(pilots.values()))["by_side"])
    lines = [
        "| recipe | epochs | pairs a second | " + " | ".join(f"{x} pixels" for x in sides) + " |",
        "|---" * (len(sides) + 3) + "|",
    ]
    for name, pilot in pilots.items():
        cells = [
            f"{100 * seen['knn_20']:.1f} / {100 * seen['linear']:.1f}"
            for seen in pilot["by_side"].values()
        ]
        about = f"{name} | {pilot['epochs']} | {pilot['pairs_per_second']:.0f}"
        lines.append(f"| {about} | {' | '.join(cells)} |")
    said = "kNN / linear (ridge) from 9,000 on 5,000 images of the training side, in %, one seed"
    return "\n".join([*lines, "", f"{said}. Command: `{content['command']}`."])


def kept_start(content: dict) -> str:
    """How often the finding `kept_start` names a start that costs labels, by the kind of case."""
    result = content["result"]
    lines = ["| cases | named | of |", "|---|---|---|"]
    for name, (named, n) in result["harmful_by_kind"].items():
        lines.append(f"| harmful, start {KEPT_STARTS.get(name, f'of a {name}')} | {named} | {n} |")
    for name, key in (("harmless", "harmless"), ("healthy, no start kept", "healthy")):
        lines.append(f"| {name} | {result[key]['accused']} | {result[key]['n']} |")
    harmful = result["harmful"]
    low, high = (f"{100 * end:.0f}" for end in harmful["interval"])
    return "\n".join(
        [
            *lines,
            "",
            f"All harmful cases: {harmful['named']} of {harmful['n']} ({low} to {high} %). "
            f"Command: `{content['command']}`.",
        ]
    )


KEPT_STARTS = {
    "added": "added to all rows",
    "in columns": "in half of the columns",
    "in rows": "in some of the rows",
    "unit": "added before rows are normalised",
    "table": "of a trained table",
    "table, other start": "of a trained table, not normal",
    "projector": "of a trained linear projector",
    "network": "of a trained network of two layers",
}
"""Kinds of cases of `kept_start_judged.py` in words."""


def emoji(content: dict) -> str:
    """Recall on held-out emoji, with one caption a picture and with several."""
    result = content["result"]
    measures = list(result["means"]["clip"])
    names = [m.replace("_", " ").replace(".", ", ").replace("recall ", "recall@") for m in measures]
    lines = [
        "| held-out emoji, asked with the original caption | " + " | ".join(names) + " |",
        "|---" * (len(measures) + 1) + "|",
    ]
    rows = {"untrained": result["untrained"], **result["means"]}
    for name, row in rows.items():
        cells = [_percent(row[measure]["seeds"]) for measure in measures]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    last = f"Mean and standard deviation over seeds. Command: `{content['command']}`."
    return "\n".join([*lines, "", last])


def temperature(content: dict) -> str:
    """Style and content with one temperature and with one a dimension."""
    names = {
        "one": "one",
        "halves": "half of them at 0.7",
        "adaptive": "measured (`Adaptive`)",
        "balanced": "trained (`Balanced`)",
    }
    columns = [(what, layer) for what in ("style", "content") for layer in "hz"]
    lines = [
        "| images | temperatures | style (R^2), h | style, z | content, h | content, z |",
        "|---|---|---|---|---|---|",
    ]
    table = content["result"]["table"]
    seeds = {}
    for pictures, kind in itertools.product(("digits", "cifar"), names):
        cell = table[f"{pictures}, {kind}"]
        cells = [_percent(cell[f"{what}_{layer}"]["seeds"]) for what, layer in columns]
        seeds[pictures] = len(cell["style_h"]["seeds"])
        lines.append(f"| {pictures} | {names[kind]} | {' | '.join(cells)} |")
    last = (
        f"Mean and standard deviation over seeds (digits {seeds['digits']}, CIFAR-10 "
        f"{seeds['cifar']}); style is the mean R^2 of the nuisances above chance, content the "
        f"accuracy of a linear readout, before (h) and after (z) the projector. "
        f"Command: `{content['command']}`."
    )
    return "\n".join([*lines, "", last])


def alignment(content: dict) -> str:
    """How well alignment ranks the gain of policies that took no part in its design."""
    found = content["result"]
    judged = [row for row in found["rows"] if row["held_out"]]
    policies = len({row["policy"] for row in judged})
    low, high = found["interval"]
    verdict = "ranks" if low > 0 else "does not rank"
    by = ", ".join(f"{label} {value:.2f}" for label, value in found["by_label"].items())
    return (
        "Alignment of augmentations with a label, estimated from views before anything is trained, "
        f"{verdict} the gain in accuracy of neighbours: Spearman {found['spearman_judged']:.2f} "
        f"(95 % interval {low:.2f} to {high:.2f}) over {len(judged)} pairs of {policies} policies, "
        f"not used to design it, and three labels of wandering digits; label by label {by}; the "
        f"label that a policy helps most is named for {found['best_label_named'] * policies:.0f} "
        f"of {policies} (`{content['command']}`)."
    )


def augment(content: dict) -> str:
    """Views a second."""
    found = "; ".join(
        f"at {size} {row['views_per_second']['ours_fast']:,.0f} views a second on one core, "
        f"{row['times_lightly']['ours_fast']:.0f} times lightly"
        for size, row in content["result"]["sizes"].items()
    )
    return f"Augmentation: {found} (`{content['command']}`)."


def train_step(content: dict) -> str:
    """What of a step is not the network."""
    step = content["result"][0]
    return (
        f"A step of `{step['encoder']}` at batch {step['batch']}: augmentation and objective "
        f"together take {100 * step['augmentation_and_objective']:.1f} % of it "
        f"(`{content['command']}`)."
    )


def kill(content: dict) -> str:
    """Runs that were killed, checkpoints that were damaged."""
    kills, damages = content["result"]["kills"], content["result"]["damages"]
    saves = sum(count for kind, count in kills["by_kind"].items() if "in a save" in kind)
    return (
        f"{kills['stopped']} runs stopped, {saves} of them inside a save, on 1 and 2 ranks, with 0 "
        f"and 2 workers, and resumed: {kills['bitwise_equal']} bitwise equal to the uninterrupted "
        f"one. {damages['damaged']} damaged checkpoints: {len(damages['accepted'])} accepted "
        f"(`{content['command']}`)."
    )


def device(content: dict) -> str:
    """What a step asks of an accelerator, before and now."""
    result = content["result"]
    lines = [
        "| forward and backward | synchronisations | operations | MB written | messages a step |",
        "|---|---|---|---|---|",
    ]
    for name, row in result["after"].items():
        old, cells = result["before"].get(name, {}), []
        for key in ("synchronisations", "operations", "bytes", "collectives"):
            scale = 1e6 if key == "bytes" else 1
            both = [f"{one[key] / scale:,.0f}" for one in (old, row) if key in one]
            cells.append(" → ".join(both))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(
        [
            *lines,
            "",
            f"Losses of {result['pairs']} pairs in {result['d']} dimensions; a step is two views "
            "through the network, NT-Xent, LARS and a slow copy. Counted, not timed: on `meta`, "
            "where to read a number is an error, and for the older source (commit "
            f"`{result['commit before'][:7]}`, left of the arrow; nothing where it has no such "
            "row), which reads numbers, on the CPU. Messages are of a training on two ranks over "
            "gloo, beside the gradients that DistributedDataParallel sends; those of a residual "
            "network are of its synchronised batch norms. Both orders of the views (BYOL, SimSiam, "
            "NNCLR, DINO) send their own.",
            f"Command: `{content['command']}`.",
        ]
    )


def scale(content: dict) -> str:
    """Seconds and memory by the number of rows, and their slopes."""
    sizes = [row["rows"] for row in content["result"][0]["sizes"]]
    heads = " | ".join(f"{n:,} rows" for n in sizes)
    lines = [f"| | {heads} | slope of seconds | slope of memory |", "|---" * (len(sizes) + 3) + "|"]
    for task in content["result"]:
        cells = [f"{row['seconds']:.3g} s, {row['megabytes']:,.0f} MB" for row in task["sizes"]]
        slopes = f"{task['slope_seconds']:.2f} | {task['slope_megabytes']:.2f}"
        lines.append(f"| {SCALED[task['task']]} | {' | '.join(cells)} | {slopes} |")
    return "\n".join(
        [
            *lines,
            "",
            "Synthetic rows of 16 dimensions, one thread, on a machine with other work. Memory is "
            "what the process held at most beyond what it held before. A slope of 1 is "
            "proportional, 0 does not grow.",
            f"Command: `{content['command']}`.",
        ]
    )


SCALED = {
    "open_folder": "open a folder of images from its cached index",
    "open_tar": "open archives from their cached index, and decode a batch of 256",
    "order": "the order of 100 batches of an epoch",
    "fingerprint": "the digest of all ids that a resumed run compares",
    "embed": "embed into shards, by a small network",
    "diagnose": "diagnose a file of embeddings",
}


def neighbours(content: dict) -> str:
    """Exact neighbours beside faiss's exact index."""
    lines = ["| | rows | ours | faiss | ratio | equal neighbours |", "|---|---|---|---|---|---|"]
    for row in content["result"]["rows"]:
        what = f"{row['call']}, {row['queries']:,} queries, {row['law']}"
        lines.append(
            f"| {what} | {row['n']:,} | {row['seconds']:.2f} s | {row['faiss']:.2f} s | "
            f"{row['ratio']:.2f} | {100 * row['same']:.2f} % |"
        )
    return "\n".join([*lines, "", f"128 dimensions, k = 20. Command: `{content['command']}`."])


def jpeg(content: dict) -> str:
    """Milliseconds of decoding, beside Pillow."""
    result = content["result"]
    lines = ["| JPEG | read at | ours | Pillow | times as fast | pixels differ by |"]
    lines.append("|---|---|---|---|---|---|")
    for row in result["rows"]:
        size = f"size {row['size']}" if row["size"] else "its size"
        lines.append(
            f"| {row['width']} x {row['height']}, {row['kilobytes']:.0f} kB | {size} | "
            f"{row['ours']:.2f} ms | {row['pillow']:.2f} ms | {row['ratio']:.1f} | "
            f"{row['mean difference']:.2g} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            f"Medians of CPU time. Ours decodes by {result['decoder']}, beside Pillow "
            f"{result['pillow']}; differences are means of 0 to 255. Command: "
            f"`{content['command']}`.",
        ]
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _percent(values: list[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ± {statistics.stdev(known):.1f}" if len(known) > 1 else ""
    return f"{_mean(known):.1f}{spread} %"


def advice(content: dict) -> str:
    """Shares of ills that are named, in all and by ill, of both parts."""
    result = content["result"]
    parts = [part for part in ("design", "judged") if part in result]
    lines = ["| | " + " | ".join(parts) + " |", "|---" * (len(parts) + 1) + "|"]
    for key, what in (
        ("harmful_named", "harmful ills (5 points or more) named in the first two findings"),
        ("harmful_warned", "the same, above a note"),
        ("harmless_accused_of_another", "harmless ills (below 1 point) accused of another"),
        ("healthy_accused", "healthy sets accused above a note"),
        ("natural_accused", "sets into which nothing was planted, accused above a note"),
    ):
        lines.append(f"| {what} | {' | '.join(_share(result[p].get(key)) for p in parts)} |")
    for one in result.get("earlier", []):
        lines += [
            "",
            f"An earlier judged part, seen once and part of the design since (rules "
            f"`{one['rules']}`): {_share(one['harmful_named'])} of the harmful named, "
            f"{_share(one['healthy_accused'])} of the sets without an ill accused.",
        ]
    lines += ["", "| ill | " + " | ".join(f"{p}: harmful named" for p in parts)]
    lines[-1] += " | " + " | ".join(f"{p}: harmless warned" for p in parts) + " |"
    lines.append("|---" * (2 * len(parts) + 1) + "|")
    for name in result[parts[-1]]["ills"]:
        own = [result[p]["ills"].get(name, {}) for p in parts]
        cells = [_share(one.get(k)) for k in ("harmful_named", "harmless_warned") for one in own]
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(one: dict | None) -> str:
    if one is None or not one["of"]:
        return "-"
    low, high = one["interval"]
    said = f"{round(one['share'] * one['of'])} of {one['of']}"
    return f"{said} ({100 * low:.0f} to {100 * high:.0f} %)"


def trainings(content: dict) -> str:
    """What each sick training lost, what was found first, and what following it regained."""
    name = "judged" if "judged" in content["result"] else "design"
    part = content["result"][name]
    lines = [
        f"Part `{name}`, {part['sick']} sick trainings of {', '.join(part['kinds'])}, of which "
        f"{part['harmed']} lost 5 points or more:",
        "",
        f"- cause named first: {_share(part['named_first'])}; in the first two: "
        f"{_share(part['named_in_two'])}",
        f"- the first advice regains 70 % of the loss or more: {_share(part['regained_70'])}",
        f"- healthy trainings accused above a note: {_share(part['healthy_accused'])}; what "
        f"following it cost them, in points: {_costs(part['healthy_cost'])}",
        "",
        "| training | accuracy | lost, points | first finding | aims at | after, mean of 3 seeds | "
        "regained |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in part["rows"]:
        aims = ", ".join(f"{key} {value}" for key, value in row["target"].items())
        after = f"{100 * row['after']:.1f} %" if "after" in row else "-"
        back = row.get("regained")
        lines.append(
            f"| {row['case'].replace('_', ' ')} | {100 * row['accuracy']:.1f} % | "
            f"{100 * row['lost']:.1f} | {(row['first'] or '-').replace('_', ' ')} | "
            f"{aims or '-'} | {after} | {'-' if back is None else f'{100 * back:.0f} %'} |"
        )
    if name == "judged" and (one := content["result"].get("design")) is not None:
        lines += [
            "",
            f"Part `design`, of {', '.join(one['kinds'])}: first {_share(one['named_first'])}; "
            f"70 % regained {_share(one['regained_70'])}.",
        ]
    for other in ("design_named", "judged_named"):
        if (one := content["result"].get(other)) is not None:
            lines += [
                "",
                f"Diagnosed only, part `{other.removesuffix('_named')}` of "
                f"{', '.join(one['kinds'])}: cause named first in {_share(one['named_first'])} "
                f"that lost 5 points or more; healthy accused: {_share(one['healthy_accused'])}.",
            ]
    return "\n".join(lines)


def _costs(costs: list[float]) -> str:
    return ", ".join(f"{100 * cost:.1f}" for cost in costs) or "none was to be followed"


TABLES: dict[str, Callable[[dict], str]] = {
    "advice": advice,
    "advice-loop": trainings,
    "objective": objective,
    "parity": parity,
    "race": race,
    "methods": methods,
    "cifar-long-0": cifar,
    "cifar-lightly": cifar_lightly,
    "cifar-shapes": cifar_shapes,
    "cifar-threads": cifar_threads,
    "cifar-pilots": cifar_pilots,
    "kept_start-judged": kept_start,
    "emoji": emoji,
    "temperature": temperature,
    "alignment": alignment,
    "augment": augment,
    "train_step": train_step,
    "kill": kill,
    "device": device,
    "scale": scale,
    "neighbours": neighbours,
    "jpeg": jpeg,
}


def comparison(results: dict[str, dict]) -> str:
    """Ours beside lightly, pytorch-metric-learning and a loss written with cross-entropy."""
    loss, parity, views = (results[name] for name in ("objective", "parity", "augment"))
    times, memory = loss["result"]["times"]["4096"], loss["result"]["peak growth in MB"]
    cpu = lambda name: f"{times[name]['bounds']:.1f} x"
    mb = lambda name: f"{memory[name]['4096']:,.0f} MB"
    outside = parity["result"]["outside"]
    cells = lambda case: [_number(outside[case][who]) for who in PEERS]
    small, zero = "tau 0.001", "a zero row, float16"
    right = [_number(outside[case]["float64"]) for case in (small, zero)]
    speed = views["result"]["sizes"]["32 px"]
    fast = f"{speed['views_per_second']['ours_fast']:,.0f}"
    slow = f"{speed['views_per_second']['ours_fast'] / speed['times_lightly']['ours_fast']:,.0f}"
    race = results["race"]["result"]["race"]
    accuracy = {
        who: _percent([one[who]["encoder"]["linear"] for one in race])
        for who in ("ours", "lightly")
    }
    rows = [
        ("time of the loss, 4,096 pairs (1 x: two matrix products and one exponential)",
         [cpu("cosine"), cpu("lightly"), "-", cpu("textbook")], loss),
        ("peak memory of the loss, 4,096 pairs",
         [mb("cosine"), mb("lightly"), "-", mb("textbook")], loss),
        (f"NT-Xent at tau 0.001 (right: {right[0]})", cells(small), parity),
        (f"NT-Xent of a zero row in float16 (right: {right[1]})", cells(zero), parity),
        ("SimCLR augmentation, 32 px, views a second on one core", [fast, slow, "-", "-"], views),
        ("CIFAR-10, 10,000 images, equal time on two cores: linear accuracy",
         [accuracy["ours"], accuracy["lightly"], "-", "-"], results["race"]),
        ("diagnosis with advice; papers' claims judged by code", ["yes", "-", "-", "-"], None),
    ]  # fmt: skip
    lines = [
        "| | Chiaroscuro | lightly | pytorch-metric-learning | textbook cross-entropy | command |",
        "|---|---|---|---|---|---|",
    ]
    for what, values, content in rows:
        command = f"`{content['command']}`" if content else "`python benchmarks/advice.py`"
        lines.append(f"| {what} | {' | '.join(values)} | {command} |")
    return "\n".join(lines)


PEERS = ("ours", "lightly", "pytorch-metric-learning", "textbook")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def written(readme: str) -> str:
    """The README with its comparison as the results say."""
    results = {
        name: json.loads((HERE / "results" / f"{name}.json").read_text())
        for name in ("objective", "parity", "augment", "race")
    }
    block = f"<!-- comparison -->\n{comparison(results)}\n<!-- /comparison -->"
    pattern = r"<!-- comparison -->.*?<!-- /comparison -->"
    return re.sub(pattern, lambda _: block, readme, flags=re.DOTALL)


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
