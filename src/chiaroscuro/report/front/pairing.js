// Two runs point by point: which samples kept their neighbours, and which have others now.

import { choice, el, refill } from "./dom.js";
import { array, labelOf, spaceName } from "./data.js";
import { bars } from "./charts.js";
import { exporter } from "./exports.js";
import { format } from "./numbers.js";
import { category } from "./palette.js";
import { panel } from "./panel.js";
import { chip, thumbnail } from "./samples.js";

const LISTED = 18; // samples that changed most

// The share of a sample's nearest neighbours that both runs name, for the samples that both have.
function kept(one, two, space) {
  const places = new Map(two.samples.ids.map((id, at) => [id, at]));
  const here = new Set(one.samples.ids);
  const [a, b] = [one.spaces[space].near, two.spaces[space].near];
  const [near, other] = [array(a), array(b)];
  const k = Math.min(a.shape[1], b.shape[1]);
  const shares = new Float32Array(one.samples.n).fill(NaN);
  const back = new Float32Array(two.samples.n).fill(NaN);
  for (let i = 0; i < one.samples.n; i += 1) {
    const j = places.get(one.samples.ids[i]);
    if (j === undefined) continue;
    const mine = new Set();
    for (let at = 0; at < k; at += 1) {
      const id = one.samples.ids[near[i * a.shape[1] + at]];
      if (places.has(id)) mine.add(id); // a neighbour that the other run does not show cannot be kept
    }
    let same = 0;
    let asked = 0;
    for (let at = 0; at < k; at += 1) {
      const id = two.samples.ids[other[j * b.shape[1] + at]];
      if (!here.has(id)) continue;
      asked += 1;
      same += mine.has(id);
    }
    const of = Math.max(mine.size, asked);
    shares[i] = of ? same / of : NaN;
    back[j] = shares[i];
  }
  return { shares, back, places, k };
}

// maps: [[run, map], …] of the two runs that stand above; they are coloured and followed together.
export function pairingPanel(maps) {
  const [[one, first], [two, second]] = maps;
  const spaces = Object.keys(one.spaces).filter((space) => Object.hasOwn(two.spaces, space));
  const body = el("div");
  const detail = el("div.detail", { "aria-live": "polite" });
  const state = { space: spaces[0], coloured: false };
  const counterpart = (run, other, i) => other.samples.ids.indexOf(run.samples.ids[i]);
  const strip = (run, i) => {
    const own = run.spaces[state.space].near;
    const near = array(own);
    return el("div", {}, el("h4", {}, run.name), el("div.tiles", {}, Array.from({ length: own.shape[1] }, (_, at) => {
      const j = near[i * own.shape[1] + at];
      const other = run === one ? two : one;
      const m = counterpart(run, other, i);
      const theirs = other.spaces[state.space].near;
      const both = m >= 0 && Array.from({ length: theirs.shape[1] }, (_, k) => other.samples.ids[array(theirs)[m * theirs.shape[1] + k]])
        .includes(run.samples.ids[j]);
      return el("div.tile", { class: both ? "tile" : "tile differs", "data-id": run.samples.ids[j] }, thumbnail(run, j, 48), chip(run, j));
    })));
  };
  const open = (i) => {
    const j = counterpart(one, two, i);
    first.lookAt(i, true);
    second.lookAt(j, true);
    refill(detail, el("h4", {}, `№ ${one.samples.ids[i]} and its nearest neighbours; a dashed frame marks those of one run alone`),
      el("div.pair", {}, thumbnail(one, i, 72), chip(one, i)), strip(one, i), strip(two, j));
  };
  const draw = () => {
    const { shares, back, k } = kept(one, two, state.space);
    const known = [...shares].map((share, i) => [share, i]).filter(([share]) => Number.isFinite(share));
    if (!known.length) {
      refill(body, el("div.empty", {}, "The two runs have no samples in common, so their points cannot be compared."));
      return;
    }
    const mean = known.reduce((sum, [share]) => sum + share, 0) / known.length;
    const counts = Array.from({ length: 5 }, () => 0);
    for (const [share] of known) counts[Math.min(4, Math.floor(share * 5))] += 1;
    const worst = known.sort((a, b) => a[0] - b[0]).slice(0, LISTED);
    const table = () => [["id", "share of neighbours kept", ...(one.samples.labels ? ["label"] : [])],
      ...known.map(([share, i]) => [one.samples.ids[i], share, ...(one.samples.labels ? [labelOf(one, i).name] : [])])];
    const colour = (map, values) => {
      map.state.custom = state.coloured ? { kind: "numbers", of: (i) => values[i], values, range: [0, 1] } : null;
      map.paint();
    };
    colour(first, shares);
    colour(second, back);
    const button = el("button.toggle", { type: "button", "aria-pressed": String(state.coloured) }, "Colour both maps by this");
    button.addEventListener("click", () => { state.coloured = !state.coloured; draw(); });
    refill(body,
      el("div.controls", {},
        choice("Space", spaces.map((space) => [space, spaceName(space)]), state.space, (value) => { state.space = value; refill(detail); draw(); }),
        el("div.buttons", {}, button, exporter(`Neighbours kept ${one.name} ${two.name}`, null, table))),
      el("p.summary", {}, el("strong", {}, `${format(100 * mean)} % of the ${k} nearest neighbours are the same`),
        ` in ${one.name} and ${two.name}, over ${format(known.length)} samples that both show.`),
      bars(counts.map((n, at) => ({ name: `${20 * at} to ${20 * (at + 1)} %`, value: n, text: format(n), colour: category(at === 0 ? 4 : 0) })),
        { name: "Samples by neighbours kept" }),
      el("h4", {}, "Samples whose neighbours changed most"),
      el("div.tiles", {}, worst.map(([share, i]) => el("button.tile", {
        type: "button", "data-id": one.samples.ids[i], "aria-label": `Sample № ${one.samples.ids[i]}, ${format(100 * share)} % kept`,
        on: { click: () => open(i) },
      }, thumbnail(one, i, 48), chip(one, i), el("small", {}, `${format(100 * share, 2)} % kept`)))), detail);
  };
  draw();
  return panel("Point by point", "The same samples in the first two runs: the share of a sample's nearest neighbours in one run that are also neighbours in the other.", null, body);
}
