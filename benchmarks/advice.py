"""Does a diagnosis name what harms, and is it silent where nothing does?

Cases are made, not listed: every ill of `planted.py` at several strengths in the bases of
`bases.py`, with its harm measured (accuracy of neighbours or recall that is lost, or won without
right), and trainings in the plain loop of `cured.py`. Bases, constructions and strengths of ills,
settings and seeds of trainings are divided beforehand: rules were written on `design`; `judged`
(bases of `judged.py`) is measured once they are. What was judged on (`once_judged.py`,
`second_judged.py`, `third_judged.py`) belongs to the design from then on. Each look at a part is
noted in `results/advice-looks.json`, with a fingerprint of the rules. Which base of these an ill is
planted into is chosen by its harm alone, which no rule has a part in.

    python benchmarks/advice.py --part design [--only offset]
    python benchmarks/advice.py --part judged
    python benchmarks/advice.py --trainings judged      # sick trainings, and the advice followed
    python benchmarks/advice.py --figures               # docs/assets/advice/*.png

`CHIARO_DATA`, `CHIARO_MINILM` and `CHIARO_PACKAGES` name the data. Named: among the first two
findings. Accused: any finding above a note. Harmful: five points or more; harmless: below one.
Healthy: nothing is planted, and no usual step before comparing rows gains a point
(`healthy.gain_of_cures`); natural: all sets into which nothing is planted.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import chiaroscuro as cs
import healthy
import judged as _judged_bases  # noqa: F401  (their bases note themselves)
import once_judged as _once_judged_bases  # noqa: F401
import second_judged as _second_judged_bases  # noqa: F401
import third_judged as _third_judged_bases  # noqa: F401
from bases import BASES, KEPT, WELL, Arrays, loaded
from chiaroscuro.diagnostics import Context, Facts, diagnose, findings
from chiaroscuro.diagnostics.assembly import further, measuring
from chiaroscuro.diagnostics.assembly.diagnosis import flat
from environment import HERE, save
from planted import ILLS, harm_of, prepared, shown

ROWS = (300, 500, 900)
"""Of a case, in turn by its key."""
FEW = 2
"""Bases of an ill, in each group."""
GROUPS = {
    "design": ("design", "once judged", "second judged", "third judged"),
    "judged": ("judged",),
}
"""Groups of bases, and of trainings, that a part is made of."""
CONSTRUCTIONS = {"once judged": 2, "second judged": 3, "third judged": 4, "judged": 5}
"""Of ills in a group; in the first group two take turns."""
HARMFUL, HARMLESS = 0.05, 0.01
LOOKS = HERE / "results" / "advice-looks.json"
KEPT_CASES = KEPT / "cases"
further.LEAST = 1 << 60  # clusters, regions and kernels: no rule reads them
measuring.list_suspects = lambda out, of: {}  # nor economy and outliers


@functools.cache
def rules() -> str:
    """A fingerprint of rules and signs, thresholds and all: what a result belongs to.

    Taken once, at the start: what is imported stays while files change.
    """
    folder = Path(cs.__file__).parent / "diagnostics"
    files = [*sorted((folder / "advice").glob("*.py"))]
    files += [*sorted((folder / "assembly").glob("*signs.py")), folder / "assembly" / "cures.py"]
    return hashlib.sha256("".join(path.read_text() for path in files).encode()).hexdigest()[:12]


def looked_at(part: str, cases: int) -> None:
    """Note that a part was looked at."""
    before = json.loads(LOOKS.read_text()) if LOOKS.exists() else []
    now = datetime.now(UTC).isoformat(timespec="seconds")
    before.append({"part": part, "rules": rules(), "cases": cases, "when": now})
    LOOKS.write_text(json.dumps(before, indent=1) + "\n")


# ---- cases of arrays ----


class Case(NamedTuple):
    """A base with an ill in it; the ill "none" is the base itself.

    Args:
        key: of the files that are kept, and of what is drawn.
        construction: of the ill, see `planted.py`.
    """

    key: str
    base: str
    ill: str
    construction: int = 0
    strength: float = 0.0


def cases(part: str) -> list[Case]:
    """All cases of a part."""
    return [case for group in GROUPS[part] for case in cases_of(group)]


def cases_of(group: str) -> list[Case]:
    """Cases of a group of bases: the bases, healthy sets, and every ill in a few bases."""
    bases = [name for name, (own, _) in BASES.items() if own == group]
    well = [name for name, (own, _) in WELL.items() if own == group]
    found = [Case(f"{name}/none", name, "none") for name in (*bases, *well)]
    for turn in range(FEW if bases else 0):  # the first base of every ill, then the second
        for at, (name, ill) in enumerate(ILLS.items()):
            able = [b for b in bases if _able(b, ill.needs)]
            able = [able[(at + k) % len(able)] for k in range(len(able))]  # for each ill others
            if group in CONSTRUCTIONS:
                found += harmful(name, able, turn, CONSTRUCTIONS[group])
            else:
                found += planted(name, able[2 * turn % len(able)], turn, ill.strengths)
    return list(dict.fromkeys(found))


def planted(name: str, base: str, construction: int, strengths: Iterable[float]) -> list[Case]:
    """Cases of an ill in a base."""
    strengths = dict.fromkeys(strengths)
    keys = {s: f"{base}/{name}{construction}/{s:g}" for s in strengths}
    return [Case(keys[s], base, name, construction, s) for s in strengths]


def harmful(name: str, able: list[str], turn: int, construction: int) -> list[Case]:
    """Cases of the ill in the first base, or the second, where some strength does harm."""
    nominal = ILLS[name].strengths
    path = KEPT / "harm.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    seen: list[list[Case]] = []
    for base in able:
        own = planted(name, base, construction, (other(s, nominal, base + name) for s in nominal))
        for one in own:
            if one.key not in known:
                known[one.key] = made(one)[1]
                path.write_text(json.dumps(known))
        if max(known[one.key] for one in own) >= HARMFUL:
            seen.append(own)
            if len(seen) > turn:
                return own
    return seen[-1] if seen else planted(name, able[0], construction, nominal)


def other(nominal: float, among: tuple[float, ...], key: str) -> float:
    """A strength near a nominal one, by the key; whole where all are, a share where all are."""
    draw = np.random.default_rng(_seed(f"{key}{nominal:g}"))
    found = nominal * float(np.exp(draw.uniform(-0.3, 0.3)))
    if all(s == int(s) and s >= 2 for s in among):
        return float(max(2, round(found)))
    found = min(found, max(among)) if max(among) <= 1 else found
    return float(f"{found:.2g}")


def _seed(key: str) -> int:
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16)


def _able(base: str, needs: str) -> bool:
    a = loaded(base)
    return needs == "pairs" or "labels" in a


def kept_at(part: str, key: str) -> Path:
    return KEPT_CASES / part / f"{key.replace('/', '--')}.json"


def made(case: Case) -> tuple[Arrays, float]:
    """What a diagnosis is given, and the harm."""
    a = loaded(case.base)
    seed = _seed(case.key)
    draw = np.random.default_rng(seed)
    every = len(next(iter(a.values())))
    rows = np.sort(draw.choice(every, min(ROWS[seed % len(ROWS)], every), replace=False))
    a = {name: value[rows] for name, value in a.items()}
    if case.ill == "none":
        return a, 0.0
    ill = ILLS[case.ill]
    before = prepared(a, ill.needs, seed)
    assert before is not None
    after = ill.plant(before, case.strength, draw, case.construction)
    return shown(after, ill.needs), harm_of(before, after, ill.harm)


def measured(case: Case, part: str) -> dict[str, Any]:
    """The measures and the harm of a case, kept on disk; rules are applied anew."""
    path = kept_at(part, case.key)
    if path.exists():
        return json.loads(path.read_text())
    started = time.process_time()
    given, harm = made(case)
    found = diagnose(given, Context())
    kept = {"measures": found.json()["measures"], "harm": harm}
    if case.ill == "none":
        kept["gain"] = healthy.gain_of_cures(loaded(case.base))
    kept["seconds"] = time.process_time() - started
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept))
    return kept


def judged(part: str, only: str | None, cached: bool) -> list[dict[str, Any]]:
    rows = []
    group_of = {case: group for group in GROUPS[part] for case in cases_of(group)}
    wanted = [one for one in group_of if only is None or only in one.key]
    if cached:
        wanted = [one for one in wanted if kept_at(part, one.key).exists()]
    for case in wanted:
        ill = case.ill
        kept = measured(case, part)
        found = findings(Facts(kept["measures"]))
        names = [one.name for one in found]
        grave = [one.name for one in found if one.severity != "note"]
        own = ILLS[ill].names if ill != "none" else ()
        rows.append(
            {
                "case": case.key,
                "group": group_of[case],
                "ill": ill,
                "harm": kept["harm"],
                **({"gain_of_cures": kept["gain"]} if ill == "none" else {}),
                "named": any(name in own for name in names[:2]),
                "warned": any(name in own for name in grave[:2]),
                "accused": [name for name in grave if name not in own],
                "found": [(one.name, one.severity) for one in found[:4]],
            }
        )
    looked_at(part, len(rows))
    return rows


def interval(k: int, n: int) -> list[float] | None:
    """Wilson's 95 % interval of a share."""
    if n == 0:
        return None
    p, z = k / n, 1.96
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return [round(max(0.0, middle - half), 3), round(min(1.0, middle + half), 3)]


def share(rows: list[dict[str, Any]], of: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    k = sum(map(of, rows))
    return {
        "share": k / len(rows) if rows else None,
        "of": len(rows),
        "interval": interval(k, len(rows)),
    }


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares in all, by group and by ill."""
    sick = [row for row in rows if row["ill"] != "none"]
    groups = dict.fromkeys(row["group"] for row in rows)
    kinds = {}
    for name in ILLS:
        own = [row for row in sick if row["ill"] == name]
        if own:
            kinds[name] = {
                "harmful_named": share([r for r in own if r["harm"] >= HARMFUL], _named),
                "harmful_warned": share([r for r in own if r["harm"] >= HARMFUL], _warned),
                "harmless_warned": share([r for r in own if r["harm"] < HARMLESS], _warned),
                "curve": [[round(r["harm"], 4), r["named"], r["warned"]] for r in own],
            }
    return {
        **_shares(rows),
        "groups": {name: _shares([r for r in rows if r["group"] == name]) for name in groups},
        "ills": kinds,
    }


def _shares(rows: list[dict[str, Any]]) -> dict[str, Any]:
    sick = [row for row in rows if row["ill"] != "none"]
    harmful = [row for row in sick if row["harm"] >= HARMFUL]
    harmless = [row for row in sick if row["harm"] < HARMLESS]
    well = [row for row in rows if row["ill"] == "none"]
    return {
        "harmful_named": share(harmful, _named),
        "harmful_warned": share(harmful, _warned),
        "harmless_accused_of_another": share(harmless, lambda row: bool(row["accused"])),
        "healthy_accused": share(
            [row for row in well if (row["gain_of_cures"] or 0.0) < HARMLESS],
            lambda row: bool(row["accused"]),
        ),
        "natural_accused": share(well, lambda row: bool(row["accused"])),
    }


def _named(row: dict[str, Any]) -> bool:
    return bool(row["named"])


def _warned(row: dict[str, Any]) -> bool:
    return bool(row["warned"])


def show(rows: list[dict[str, Any]], found: dict[str, Any]) -> None:
    for row in rows:
        bad = row["harm"] >= HARMFUL and not row["named"]
        if (
            (row["ill"] == "none" and row["accused"])
            or bad
            or (row["harm"] < HARMLESS and row["accused"])
        ):
            gain = row.get("gain_of_cures")
            said = "" if gain is None else f" cures gain {gain:+.3f}"
            print(f"  {row['case']:<44} harm {row['harm']:+.3f}{said} {row['found'][:3]}")
    for name, one in found["ills"].items():
        named, warned, quiet = (
            one[k] for k in ("harmful_named", "harmful_warned", "harmless_warned")
        )
        text = lambda x: "-" if x["share"] is None else f"{x['share']:.2f} of {x['of']}"
        print(
            f"{name:<26} named {text(named):<11} warned {text(warned):<11} "
            f"harmless warned {text(quiet)}"
        )
    for key in (
        "harmful_named",
        "harmful_warned",
        "harmless_accused_of_another",
        "healthy_accused",
        "natural_accused",
    ):
        print(key, found[key])
        for name, own in found["groups"].items():
            print(f"    {name}: {own[key]['share']} of {own[key]['of']}")


# ---- trainings ----


KINDS = ("arrays", "pictures", "series", "bags", "tokens")


def trainings(part: str, retrain: bool, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """Sick and healthy trainings: the first finding, and what following its advice regains."""
    from cured import FIRST_SEED, HEALTHY, Loop, followed, kept, sick

    rows = []
    chosen = [
        (group, *one)
        for group in GROUPS[part]
        if group in HEALTHY
        for one in (
            *((f"healthy{k}-{own.kind}", (), own) for k, own in enumerate(HEALTHY[group])),
            *sick(group),
        )
        if one[2].kind in kinds
    ]
    networks = sorted({(group, loop.kind, loop.network) for group, _, _, loop in chosen})
    usual = {of: _mean_accuracy(Loop(of[1], network=of[2]), FIRST_SEED[of[0]]) for of in networks}
    for group, name, names, loop in chosen:
        offset = FIRST_SEED[group]
        made = kept(loop, offset)
        path = KEPT / "trained-cases" / group / f"{name}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(diagnose(made.arrays, made.context).json()["measures"]))
        found = findings(Facts(json.loads(path.read_text()), flat(made.context.settings)))
        grave = [one for one in found if one.severity != "note"]
        lost = usual[group, loop.kind, loop.network] - made.accuracy
        row: dict[str, Any] = {
            "case": name,
            "group": group,
            "accuracy": made.accuracy,
            "lost": lost,
            "first": grave[0].name if grave else None,
            "found": [one.name for one in grave],
            "named_first": bool(grave) and grave[0].name in names,
            "named": any(one.name in names for one in grave[:2]),
            "change": grave[0].change if grave else [],
            "target": dict(grave[0].target) if grave else {},
        }
        better = followed(loop, grave[0].target) if grave else None
        if retrain and better is not None:
            row["after"] = _mean_accuracy(better, offset)
            row["regained"] = (row["after"] - made.accuracy) / lost if lost >= HARMFUL else None
            row["cost"] = _mean_accuracy(loop, offset) - row["after"]
        rows.append(row)
        print(json.dumps(row), flush=True)
    looked_at(f"{part} trainings", len(rows))
    ill = [row for row in rows if not row["case"].startswith("healthy")]
    harmed = [row for row in ill if row["lost"] >= HARMFUL]
    well = [row for row in rows if row["case"].startswith("healthy")]
    return {
        "kinds": kinds,
        "usual": {" ".join(of): accuracy for of, accuracy in usual.items()},
        "sick": len(ill),
        "harmed": len(harmed),
        "named_first": share(harmed, lambda row: row["named_first"]),
        "named_in_two": share(harmed, lambda row: row["named"]),
        "regained_70": share(
            harmed if retrain else [], lambda r: (r.get("regained") or 0.0) >= 0.7
        ),
        "healthy_accused": share(well, lambda row: bool(row["found"])),
        "healthy_cost": [round(row["cost"], 4) for row in well if "cost" in row],
        "rows": rows,
    }


def _mean_accuracy(loop: Any, offset: int) -> float:
    """Mean over three seeds."""
    from cured import kept

    return float(np.mean([kept(loop, offset + seed).accuracy for seed in (1, 2, 3)]))


def temperatures() -> dict[str, Any]:
    """What log k and cosines vary by over negatives in networks trained over a range of tau."""
    from cured import Loop, kept

    found = []
    for kind in KINDS[:3]:
        for tau in (0.005, 0.01, 0.02, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0):
            made = kept(Loop(kind, tau=tau), 0)
            z1, z2 = (made.arrays[name] for name in ("z1", "z2"))
            u, v = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (z1, z2))
            rest = (u @ v.T)[~np.eye(len(u), dtype=bool)].reshape(len(u), -1)
            spread = float(rest.std(axis=1).mean())
            row = {"kind": kind, "tau": tau, "accuracy": made.accuracy, "cosines": spread}
            found.append({**row, "log_k": spread / tau, "mean_cosine": float((u @ u.T).mean())})
    return {"rows": found}


# ---- figures ----

FAMILIES = {
    "collapse": ("offset", "cone", "few_points", "one_class", "decay", "few_directions"),
    "dimensions": ("dominating", "nearly_dead", "repeated", "quantised", "shrunk", "permuted"),
    "rows": ("zeros", "outliers", "half_normalised", "two_scales", "two_encoders", "copies"),
    "labels": ("label_noise", "shuffled_labels", "pure_noise", "leak", "shifted_split"),
    "pairs": ("mispaired", "gap", "scaled_side"),
    "unlabelled": tuple(name for name in ILLS if name.endswith("_unlabelled")),
}
"""Ills of a figure, at most six."""
EDGES = (-1, 0.01, 0.05, 0.15, 0.3, 1.01)
BINS = ("< 1", "1-5", "5-15", "15-30", "> 30")


def figures() -> list[Path]:
    """A panel per ill: the share that is named, with its interval, against the harm."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    result = json.loads((HERE / "results" / "advice.json").read_text())["result"]
    folder = HERE.parent / "docs" / "assets" / "advice"
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for family, names in FAMILIES.items():
        lines = -(-len(names) // 3)
        size = (9.5, 2.5 * lines + 0.7)
        fig, axes = plt.subplots(lines, 3, figsize=size, sharey=True, squeeze=False)
        for ax, name in zip(axes.flat, names, strict=False):
            for part, colour, shift in (("design", "0.55", -0.12), ("judged", "#1f5fa8", 0.12)):
                curve = result.get(part, {}).get("ills", {}).get(name, {}).get("curve", [])
                _curve(ax, curve, colour, shift)
            ax.axvspan(1.5, len(BINS) - 0.5, color="0.94", zorder=0)
            ax.set_title(name.replace("_", " "), fontsize=10)
            ax.set_xticks(range(len(BINS)), BINS, fontsize=8)
            ax.set_xlim(-0.5, len(BINS) - 0.5)
            ax.set_ylim(-0.05, 1.05)
        for ax in axes.flat[len(names) :]:
            ax.axis("off")
        fig.supxlabel("harm: points of accuracy or recall lost, or won without right", fontsize=10)
        fig.supylabel("share named in the first two findings", fontsize=10)
        handles = [
            plt.Line2D([], [], marker="o", ls="-", color=c, label=p)
            for p, c in (("design", "0.55"), ("judged", "#1f5fa8"))
        ]
        fig.legend(handles=handles, loc="upper right", ncols=2, fontsize=9, frameon=False)
        fig.tight_layout(rect=(0, 0, 1, 0.95))
        made.append(folder / f"{family}.png")
        fig.savefig(made[-1], dpi=90)
        plt.close(fig)
    return made


def _curve(ax: Any, curve: list[Any], colour: str, shift: float) -> None:
    drawn = []
    for k in range(len(BINS)):
        own = [row for row in curve if EDGES[k] <= row[0] < EDGES[k + 1]]
        if own:
            hits = sum(row[1] for row in own)
            low, high = interval(hits, len(own)) or [0, 1]
            ax.plot([k + shift] * 2, [low, high], color=colour, lw=1, alpha=0.6)
            drawn.append((k + shift, hits / len(own)))
    ax.plot(*zip(*drawn, strict=True), "o-", color=colour, ms=4, lw=1) if drawn else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("design", "judged"))
    parser.add_argument("--only", metavar="TEXT", help="cases whose name holds this")
    parser.add_argument("--measure", action="store_true", help="measure and keep; apply no rule")
    parser.add_argument("--cached", action="store_true", help="only cases that are kept")
    parser.add_argument("--trainings", choices=("design", "judged"))
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of data, of trainings")
    parser.add_argument("--no-cure", action="store_true", help="do not train again")
    parser.add_argument("--temperatures", action="store_true")
    parser.add_argument("--figures", action="store_true")
    call = parser.parse_args()
    rules()
    torch.set_num_threads(1)
    stored = HERE / "results" / "advice.json"
    result = json.loads(stored.read_text())["result"] if stored.exists() else {}
    earlier = result.get("earlier", [])
    result = {part: result[part] for part in ("design", "judged") if "ills" in result.get(part, {})}
    result |= {"earlier": earlier}
    if call.measure:
        for case in cases(call.part):
            if call.only is None or call.only in case.key:
                measured(case, call.part)
        return
    for part in filter(None, (call.part, call.trainings)):
        if part == "judged" and not any(group == "judged" for group, _ in BASES.values()):
            parser.error("judged.py has no bases yet: nothing is left to be judged on")
    if call.part:
        rows = judged(call.part, call.only, call.cached)
        found = table(rows)
        show(rows, found)
        if call.only is None:
            if call.part == "judged" and "judged" in result:  # what was said before stays said
                kept = {k: v for k, v in result["judged"].items() if k not in ("ills", "cases")}
                result["earlier"] = [*earlier, kept]
            result |= {call.part: {"rules": rules(), **found, "cases": rows}}
            print(
                save("advice", result, "python benchmarks/advice.py --part design; --part judged")
            )
    if call.trainings:
        found = trainings(call.trainings, not call.no_cure, tuple(call.kinds.split(",")))
        print({k: v for k, v in found.items() if k != "rows"}, file=sys.stderr)
        path = HERE / "results" / "advice-loop.json"
        old = json.loads(path.read_text())["result"] if path.exists() else {}
        old = old if "cases" not in old else {}
        # what was only diagnosed stands beside what was also trained again
        old |= {call.trainings + "_named" * call.no_cure: {"rules": rules(), **found}}
        command = "; ".join(
            f"--trainings {part.removesuffix('_named')} --kinds {','.join(old[part]['kinds'])}"
            + " --no-cure" * part.endswith("_named")
            for part in old
        )
        print(save("advice-loop", old, f"python benchmarks/advice.py {command}"))
    if call.temperatures:
        print(
            save("advice-temperature", temperatures(), "python benchmarks/advice.py --temperatures")
        )
    if call.figures:
        print(*figures())


if __name__ == "__main__":
    main()
