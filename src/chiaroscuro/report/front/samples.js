// Samples: their thumbnails or texts, the card of one, the grid of many.

import { copy, el, refill } from "./dom.js";
import { array, labelOf } from "./data.js";
import { csv, download, fileName } from "./exports.js";
import { format } from "./numbers.js";
import { category } from "./palette.js";

const loading = new Map();

function sheet(run, at) {
  const address = run.samples.sheets.images[at];
  if (!loading.has(address)) {
    loading.set(address, new Promise((done) => {
      const image = new Image();
      image.addEventListener("load", () => done(image));
      image.src = address;
    }));
  }
  return loading.get(address);
}

const ready = new Map();

// The sheet of a sample's image and its place on it; null until it is loaded, and then calls again().
export function tile(run, i, again) {
  const { sheets } = run.samples;
  const at = Math.floor(i / sheets.tiles);
  const address = sheets.images[at];
  if (!ready.has(address)) {
    ready.set(address, null);
    sheet(run, at).then((image) => { ready.set(address, image); again(); });
  }
  const image = ready.get(address);
  const k = i % sheets.tiles;
  return image ? { image, x: (k % sheets.columns) * sheets.side, y: Math.floor(k / sheets.columns) * sheets.side } : null;
}

export function thumbnail(run, i, pixels) {
  const { sheets, texts } = run.samples;
  if (!sheets) return el("span.text", {}, texts ? texts[i] : `№ ${run.samples.ids[i]}`);
  const canvas = el("canvas.thumb", { width: sheets.side, height: sheets.side, "aria-hidden": "true" });
  canvas.style.width = canvas.style.height = `${pixels}px`;
  const tile = i % sheets.tiles;
  sheet(run, Math.floor(i / sheets.tiles)).then((image) => {
    const x = (tile % sheets.columns) * sheets.side;
    const y = Math.floor(tile / sheets.columns) * sheets.side;
    canvas.getContext("2d").drawImage(image, x, y, sheets.side, sheets.side, 0, 0, sheets.side, sheets.side);
    canvas.dataset.drawn = String(i);
  });
  return canvas;
}

export function chip(run, i) {
  const label = labelOf(run, i);
  if (!label) return null;
  const dot = el("span.dot");
  dot.style.background = category(label.code);
  return el("span.chip", {}, dot, label.name);
}

// What is known of one sample, as a list of [name, value].
export function facts(run, space, i) {
  const { samples } = run;
  const own = run.spaces[space];
  const facts = [["cluster", String(array(own.graph.clusters)[i] + 1)]];
  if (samples.split) facts.push(["split", array(samples.split)[i] ? "test" : "train"]);
  facts.push([`norm of ${space}`, format(array(own.norms)[i])]);
  facts.push(["in neighbour lists", format(array(own.hubs)[i])]);
  for (const [name, blob] of Object.entries(samples.factors ?? {})) facts.push([name.replaceAll("_", " "), format(array(blob)[i])]);
  return facts;
}

export function card(run, space, i) {
  const text = run.samples.texts && run.samples.sheets ? el("p.words", {}, run.samples.texts[i]) : null;
  const list = el("dl.facts");
  for (const [name, value] of facts(run, space, i)) list.append(el("dt", {}, name), el("dd", {}, value));
  return el("div.card", { "data-id": run.samples.ids[i] },
    thumbnail(run, i, 96),
    el("div", {}, el("strong", {}, `№ ${run.samples.ids[i]} `), chip(run, i), text, list));
}

function neighbours(run, space, i, open) {
  const own = run.spaces[space];
  const k = own.near.shape[1];
  const near = array(own.near);
  const cosine = (at) => array(own.cosines)[at] / 32767.5 - 1;
  const mine = labelOf(run, i)?.code;
  return Array.from({ length: k }, (_, at) => {
    const j = near[i * k + at];
    const other = labelOf(run, j);
    const differs = other && mine >= 0 && other.code !== mine;
    return el("button.tile", {
      type: "button", "data-id": run.samples.ids[j], class: differs ? "tile differs" : "tile",
      "aria-label": `Neighbour № ${run.samples.ids[j]}, ${other?.name ?? ""}, cosine ${format(cosine(i * k + at))}`,
      on: { click: () => open(j) },
    }, thumbnail(run, j, 56), chip(run, j), el("small", {}, `cos ${format(cosine(i * k + at))}`));
  });
}

const PAGE = 48;

// The samples that are selected: what they are, and each with its neighbours on demand.
export function grid(run, space, selected, point) {
  const holder = el("div.selection");
  const detail = el("div.detail", { "aria-live": "polite" });
  const open = (i) => {
    point(i);
    refill(detail, el("h4", {}, "One sample and its nearest neighbours"),
      card(run, space, i),
      el("p.hint", {}, "The most similar samples by cosine in this space; a dashed frame marks another label."),
      el("div.tiles", {}, neighbours(run, space, i, open)));
  };
  const tiles = el("div.tiles");
  const more = el("button.quiet", { type: "button" });
  let showing = 0;
  const extend = () => {
    for (const i of selected.slice(showing, showing + PAGE)) {
      tiles.append(el("button.tile", {
        type: "button", "data-id": run.samples.ids[i],
        "aria-label": `Sample № ${run.samples.ids[i]}, ${labelOf(run, i)?.name ?? ""}`,
        on: { click: () => open(i), pointerenter: () => point(i), pointerleave: () => point(null) },
      }, thumbnail(run, i, 56), chip(run, i)));
    }
    showing = Math.min(selected.length, showing + PAGE);
    more.textContent = `Show more (${format(selected.length - showing)} left)`;
    more.hidden = showing >= selected.length;
  };
  more.addEventListener("click", extend);
  extend();
  return { node: refill(holder, summary(run, space, selected), saving(run, selected), detail, tiles, more), open };
}

// A selection as ids in the clipboard, as a table, and as a split of the data.
function saving(run, selected) {
  const { ids, texts, labels } = run.samples;
  const said = el("span.said", { "aria-live": "polite" });
  const stem = fileName(run.name);
  const table = () => [["id", ...(labels ? ["label"] : []), ...(texts ? ["text"] : [])],
    ...selected.map((i) => [ids[i], ...(labels ? [labelOf(run, i).name] : []), ...(texts ? [texts[i]] : [])])];
  const split = () => {
    const chosen = new Set(selected);
    return [["id", "split"], ...ids.map((id, i) => [id, chosen.has(i) ? 1 : 0])];
  };
  const button = (text, title, run_) => el("button.quiet", { type: "button", title, on: { click: run_ } }, text);
  return el("div.buttons.saving", {},
    button("Copy ids", "One id per line", async () => {
      said.textContent = (await copy(selected.map((i) => ids[i]).join("\n"))) ? "Copied" : "The clipboard is closed";
      setTimeout(() => (said.textContent = ""), 2000);
    }),
    button("CSV of ids", "The selected samples: id, label, text", () => download(`${stem}-selection.csv`, csv(table()), "text/csv;charset=utf-8")),
    button("New split", "All samples: id and split, 1 for the selected ones and 0 for the others",
      () => download(`${stem}-split.csv`, csv(split()), "text/csv;charset=utf-8")), said);
}

function summary(run, space, selected) {
  const text = el("p.summary", {}, el("strong", {}, `${format(selected.length)} samples selected`));
  if (!run.samples.labels) return text;
  const counts = new Map();
  for (const i of selected) {
    const { name } = labelOf(run, i);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  const parts = sorted.slice(0, 6).map(([name, n]) => `${name} (${format((100 * n) / selected.length, 2)} %)`);
  const rest = sorted.length > 6 ? `, and ${sorted.length - 6} more labels` : "";
  const own = run.spaces[space];
  const k = own.near.shape[1];
  const near = array(own.near);
  let same = 0;
  for (const i of selected) {
    for (let at = 0; at < k; at += 1) same += labelOf(run, near[i * k + at]).code === labelOf(run, i).code;
  }
  const share = format((100 * same) / Math.max(1, selected.length * k), 2);
  text.append(`: ${parts.join(", ")}${rest}. Of their ${k} nearest neighbours ${share} % have their label.`);
  return text;
}
