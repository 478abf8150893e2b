// Two or more runs side by side.

import { el, scroller } from "./dom.js";
import { lines } from "./charts.js";
import { exporter, mapExporter } from "./exports.js";
import { spaceName } from "./data.js";
import { pointMap } from "./map.js";
import { measureName, parts, unit, shownName } from "./numbers.js";
import { category } from "./palette.js";
import { pairingPanel } from "./pairing.js";
import { columns, panel, section } from "./panel.js";

const MEASURES = ["shown_knn_accuracy", "effective_rank", "participation_ratio", "alignment", "uniformity"];

export function compareSection(runs, open) {
  const withPoints = runs.filter((run) => run.samples);
  const maps = [];
  // what is looked at in one map is looked at in all
  const follow = (run, i) => {
    for (const [other, map] of maps) {
      if (other === run) continue;
      const j = i === null ? null : other.samples.ids.indexOf(run.samples.ids[i]);
      map.lookAt(j === -1 ? null : j, true);
    }
  };
  for (const run of withPoints) maps.push([run, pointMap(run, { small: true, onLook: (i) => follow(run, i) })]);
  const time = shared(maps);
  const side = maps.length ? el("div.side", {}, maps.map(([run, map]) => el("figure", {}, el("figcaption", {},
    el("button.link", { type: "button", on: { click: () => open(runs.indexOf(run)) } }, run.name),
    mapExporter(`Map of ${run.name}`, map)), map.stage))) : null;
  return section("compare", "Side by side",
    el("p.explain", {}, `${runs.length} runs, on the same page and the same scales; click a name to open the run below.`),
    side, time, maps.length > 1 ? pairingPanel(maps.slice(0, 2)) : null,
    panel("Measures", "The last epoch of each run, and the difference from the first run in the table.", null, measures(runs)),
    columns(...curves(runs)),
    panel("Settings that differ", "All other settings are equal.", null, differences(runs)));
}

function shared(maps) {
  if (!maps.some(([run]) => run.epochs.length > 1)) return null;
  const range = el("input", { type: "range", min: 0, max: 1, step: 0.005, "aria-label": "Share of the training" });
  range.value = "1";
  const output = el("output", {}, "100 % of training");
  range.addEventListener("input", () => {
    const share = Number(range.value);
    output.textContent = `${Math.round(100 * share)} % of training`;
    for (const [run, map] of maps) {
      map.state.t = share * (run.epochs.length - 1);
      map.ask();
    }
  });
  return el("div.time", {}, range, output);
}

// Rows [text, name, values]: of the rows diagnosed where every run has a diagnosis, else of the samples shown.
function measured(runs) {
  const rows = [];
  const results = runs.map((run) => run.evaluation?.results?.encoder ?? {});
  const heldOut = results.every((one) => one.knn_20 !== undefined);
  for (const space of ["h", "z"]) {
    for (const name of MEASURES) {
      if (name === "shown_knn_accuracy" && heldOut) continue; // one accuracy: the held-out one
      const key = `${space === "z" ? "z_" : ""}${name.replace("shown_", "")}`;
      const told = runs.map((run) => run.diagnosis?.measures?.[key] ?? null);
      const shown = runs.map((run) => run.frames?.at(-1)?.[space]?.[name] ?? null);
      const both = told.every((v) => v !== null);
      const values = both ? told : shown;
      const text = both ? measureName(name.replace("shown_", "")) : shownName(name);
      if (values.some((v) => v !== null)) rows.push([`${text}, ${spaceName(space)}`, name, values]);
    }
  }
  for (const name of ["knn_20", "linear"]) {
    const values = results.map((one) => one[name] ?? null);
    if (values.some((v) => v !== null)) rows.push([`${measureName(name)}, encoder h`, name, values]);
  }
  const losses = runs.map((run) => run.training?.epochs?.mean_loss?.at(-1) ?? null);
  if (losses.some((v) => v !== null)) rows.push(["mean loss of the last epoch", "mean_loss", losses]);
  return rows;
}

function measures(runs) {
  const rows = measured(runs);
  const head = el("tr", {}, el("th", { scope: "col" }, "measure"), runs.map((run) => el("th", { scope: "col" }, run.name)));
  const body = rows.map(([text, name, values]) => {
    // the unit stands once, beside the name: a narrow column has no room for it
    const kind = unit(name);
    return el("tr", {}, el("th", { scope: "row" }, kind && kind !== "%" ? `${text} (${kind})` : text),
      values.map((value, at) => el("td", {}, parts(name, value)[0], kind === "%" && value !== null ? "\u202f%" : "",
        at && value !== null && values[0] !== null ? el("small", {}, signed(name, value - values[0])) : null)));
  });
  return el("div", {}, el("div.above", {}, exporter("Measures of all runs", null,
    () => [["measure", ...runs.map((run) => run.name)], ...rows.map(([text, , values]) => [text, ...values])])),
  scroller("Measures of all runs", el("table.plain.compare", {}, el("thead", {}, head), el("tbody", {}, body))));
}

function signed(name, difference) {
  return ` ${difference < 0 ? "\u2212" : "+"}${parts(name, Math.abs(difference))[0]}${unit(name) === "%" ? " points" : ""}`;
}

function curves(runs) {
  const panels = [];
  const add = (title, y, of) => {
    const series = runs.map((run, at) => ({ name: run.name, colour: category(at), dash: at ? `${4 + 2 * at} 3` : undefined, ...of(run) }))
      .filter((one) => one.y?.some((v) => v !== null));
    if (series.some((one) => one.y.length > 1)) panels.push(panel(title[0].toUpperCase() + title.slice(1), "All runs, over the epochs.", null, lines(series, { x: "epoch", y }).node));
  };
  add("Loss", "Mean loss, nats", (run) => ({ x: run.training?.epochs?.epoch ?? [], y: run.training?.epochs?.mean_loss ?? [] }));
  for (const [name, y, share] of [["shown_knn_accuracy", "kNN accuracy, %", 100], ["effective_rank", "Effective rank of h, dimensions", 1]]) {
    add(shownName(name), y, (run) => ({
      x: run.epochs ?? [], y: (run.frames ?? []).map((frame) => (frame.h ?? frame.z)[name]).map((v) => (v === null ? null : share * v)),
    }));
  }
  return panels;
}

function differences(runs) {
  const flats = runs.map((run) => run.made?.flat ?? {});
  const keys = [...new Set(flats.flatMap((flat) => Object.keys(flat)))];
  const differing = keys.filter((key) => new Set(flats.map((flat) => String(flat[key]))).size > 1);
  if (!differing.length) return el("p", {}, "None.");
  const head = el("tr", {}, el("th", { scope: "col" }, "setting"), runs.map((run) => el("th", { scope: "col" }, run.name)));
  return el("div", {}, el("div.above", {}, exporter("Settings that differ", null,
    () => [["setting", ...runs.map((run) => run.name)], ...differing.map((key) => [key, ...flats.map((flat) => flat[key])])])),
  scroller("Settings that differ",
    el("table.plain", {}, el("thead", {}, head), el("tbody", {}, differing.map((key) =>
      el("tr", {}, el("th", { scope: "row" }, key), flats.map((flat) => el("td", {}, String(flat[key] ?? "–")))))))));
}
