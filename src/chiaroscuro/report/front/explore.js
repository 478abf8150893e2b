// The map with its controls, the slider of the epochs, and the charts that go with it.

import { byTouch, choice, el, refill, toggle, unique } from "./dom.js";
import { colourings, labelOf, spaceName } from "./data.js";
import { mapExporter } from "./exports.js";
import { lines } from "./charts.js";
import { pointMap } from "./map.js";
import { format, own, unit, shownName } from "./numbers.js";
import { category } from "./palette.js";
import { empty, section } from "./panel.js";
import { paperLink } from "./papers.js";
import { grid } from "./samples.js";

const SECONDS = 8; // of a whole training, when played

export function exploreSection(run, follow) {
  if (!run.samples) {
    const why = run.notes.find((note) => note.includes("map"));
    if (why || !run.where) return section("map", "Map", el("div.empty", {}, why ?? "There are no embeddings here."));
    return section("map", "Map", empty("There are no embeddings here. Embed the data of the run:",
      `chiaro embed ${run.where} --out ${inside(run.where, "embeddings/all.npz")}`));
  }
  const chosen = el("div.chosen", { "aria-live": "polite" });
  const told = el("div.told");
  const hint = el("p.hint", {}, byTouch()
    ? "Tap a point to see its sample, or switch on Lasso and draw around a group. + and − zoom; images appear when you zoom in."
    : "Hover over a point to see its sample; draw around a group to select it. Shift and drag moves the map, Ctrl and "
      + "wheel zooms; images appear when you zoom in. Keys: arrows, + − 0, full stop and comma, Enter, Escape.");
  let beside = null; // the map of the raw input
  const map = pointMap(run, {
    onLook: (i) => beside?.lookAt(i, true),
    onSelect(selected) {
      beside?.select(selected, true);
      refill(told, selected ? null : hint);
      if (!selected) return refill(chosen);
      const shown = grid(run, map.state.space, selected, map.lookAt);
      refill(chosen, shown.node);
      if (selected.length === 1) shown.open(selected[0]);
      return chosen;
    },
  });
  refill(told, hint);
  const { state } = map;
  if (run.input) {
    beside = pointMap(run, {
      small: true, plan: run.input.map, onLook: (i) => map.lookAt(i), onSelect: (selected) => map.select(selected),
    });
  }
  const paint = () => {
    map.paint();
    if (beside) {
      Object.assign(beside.state, { space: state.space, colour: state.colour, only: state.only });
      beside.paint();
    }
  };
  map.key.addEventListener("click", () => queueMicrotask(paint));
  const controls = el("div.controls");
  const rebuild = () => {
    const here = run.spaces[state.space];
    const lastOnly = here.pairs ? null : "two views are not in the file";
    refill(controls,
      choice("Space", Object.keys(run.spaces).map((s) => [s, `${spaceName(s)} (${run.spaces[s].d})`]), state.space,
        (value) => { state.space = value; change(); }),
      choice("Projection", Object.keys(here.maps).map((m) => [m, m === "itself" ? `${state.space} itself` : m]), state.map,
        (value) => { state.map = value; change(); }),
      choice("Colour", colourings(run, state.space).map(([key, name]) => [key, name]), state.colour,
        (value) => { state.colour = value; state.only = null; paint(); }),
      search,
      el("div.buttons", {},
        toggle("Lasso", state.lasso, (on) => { state.lasso = on; map.touches(); }, { title: "Off: dragging moves the map (L)" }),
        toggle("Pairs", state.pairs, (on) => { state.pairs = on; map.ask(); },
          { disabled: !here.pairs, title: lastOnly ?? "Join the two views of a sample; on PCA, at the last epoch" }),
        toggle("Graph", state.edges, (on) => { state.edges = on; map.ask(); }, { title: "Show edges to nearest neighbours" }),
        run.samples.sheets ? toggle("Images", state.images, (on) => { state.images = on; map.ask(); }, { title: "Show images instead of points when zoomed in" }) : null,
        zoom("−", "Zoom out", 0.7), zoom("+", "Zoom in", 1.4),
        el("button.quiet", { type: "button", on: { click: map.fit } }, "Show all"),
        mapExporter(`Map of ${run.name}`, map)));
  };
  const zoom = (text, label, by) => el("button.quiet", { type: "button", "aria-label": label, on: { click: () => map.zoomBy(by) } }, text);
  const search = finder(run, (rows) => map.select(rows));
  const change = () => {
    const { maps } = run.spaces[state.space];
    if (!own(maps, state.map)) state.map = Object.keys(maps)[0];
    paint();
    if (state.selected) map.select(state.selected);
    rebuild();
  };
  rebuild();
  map.touches();
  map.stage.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "l") return;
    state.lasso = !state.lasso;
    map.touches();
    rebuild();
  });
  const { node, charts } = inStep(run);
  const time = slider(run, (t) => {
    state.t = t;
    map.lookAt(null);
    map.ask();
    const epoch = epochAt(run, t);
    for (const chart of charts) chart.cursor(epoch);
    follow(Math.round(t), epoch);
  });
  const about = el("p.explain", {}, "Each point is a sample; similar embeddings are close together. ",
    el("em", {}, "t-SNE"), " keeps neighbours together (", paperLink("maaten2008tsne", el), "; the sizes of groups and the gaps between them mean little), ",
    el("em", {}, "PCA"), " shows the two directions of largest variance, ", el("em", {}, "spectral"),
    " the first two eigenvectors of the nearest-neighbour graph (", paperLink("tan2024", el), "). ", run.sentence);
  const raw = beside ? el("figure.plot.raw", {}, el("figcaption", {}, el("span", {}, `Raw input: t-SNE of the ${run.input.what}`),
    mapExporter(`Map of the input of ${run.name}`, beside)), beside.stage) : null;
  if (raw) node.prepend(raw);
  const section_ = section("map", "Map", about, controls,
    el("div.explore", { class: node.childElementCount ? "explore" : "explore alone" },
      el("div.left", {}, map.stage, map.key, time, told), node.childElementCount ? node : null), chosen);
  section_.map = map;
  // rows by their ids, for a finding: selected and shown, with how many are not among the samples here
  section_.showIds = (wanted) => {
    const places = new Map(run.samples.ids.map((id, i) => [id, i]));
    const rows = wanted.map((id) => places.get(id)).filter((i) => i !== undefined);
    map.select(rows);
    section_.scrollIntoView();
    return rows.length;
  };
  return section_;
}

// A path below a place that may be in quotes.
export function inside(where, name) {
  const mark = /['"]$/.exec(where)?.[0] ?? "";
  return `${mark ? where.slice(0, -1) : where}/${name}${mark}`;
}

// Search in ids, labels and texts: all words have to occur. A word that is the whole of some id or label means those only.
function finder(run, select) {
  const { ids, texts, labels } = run.samples;
  const id = unique("find");
  const said = el("span.said", { "aria-live": "polite" });
  const field = el("input", { type: "search", id, placeholder: texts ? "id, label or text" : labels ? "id or label" : "id" });
  const named = Array.from({ length: run.samples.n }, (_, i) => [ids[i].toLowerCase(), labels ? labelOf(run, i).name.toLowerCase() : ""]);
  const whole = new Set(named.flat());
  const matches = (i, word) => (whole.has(word) ? named[i].includes(word)
    : named[i].some((name) => name.includes(word))) || Boolean(texts?.[i].toLowerCase().includes(word));
  let waiting = null;
  const look = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) {
      said.textContent = "";
      select(null);
      return;
    }
    const rows = [];
    for (let i = 0; i < run.samples.n; i += 1) {
      if (words.every((word) => matches(i, word))) rows.push(i);
    }
    said.textContent = `${format(rows.length)} found`;
    select(rows);
  };
  field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(look, 150); });
  return el("div.choice", {}, el("label", { for: id }, "Search ", said), field);
}

function epochAt(run, t) {
  const low = Math.min(Math.floor(t), run.epochs.length - 1);
  const high = Math.min(low + 1, run.epochs.length - 1);
  return run.epochs[low] + (t - low) * (run.epochs[high] - run.epochs[low]);
}

function slider(run, move) {
  const top = run.epochs.length - 1;
  if (top === 0) {
    return run.training
      ? el("p.hint", {}, "This run has no snapshots, so the map shows the last epoch only; `chiaro train` writes snapshots by default.")
      : el("p.hint", {}, "An embeddings file holds one epoch; the report of a run with snapshots shows all of them.");
  }
  const output = el("output");
  const range = el("input", { type: "range", min: 0, max: top, step: 0.02, value: top, "aria-label": "Epoch" });
  range.value = String(top);
  const play = el("button.play", { type: "button", "aria-label": "Play the training" }, "▶");
  let running = null;
  const show = () => {
    const t = Number(range.value);
    const epoch = Math.round(epochAt(run, t));
    const text = epoch === 0 ? "before training" : `epoch ${epoch} of ${run.epochs.at(-1)}`;
    output.textContent = text;
    range.setAttribute("aria-valuetext", text);
    move(t);
  };
  const stop = () => {
    running = null;
    play.textContent = "▶";
    play.setAttribute("aria-label", "Play the training");
  };
  range.addEventListener("input", () => { stop(); show(); });
  range.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    stop();
    range.value = String(Math.min(top, Math.max(0, Math.round(Number(range.value)) + by)));
    show();
  });
  play.addEventListener("click", () => {
    if (running !== null) return stop();
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
    if (Number(range.value) >= top) range.value = "0";
    let last = performance.now();
    const mine = (running = Symbol("play"));
    const whole = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let exact = Number(range.value);
    const tick = (now) => {
      if (running !== mine) return;
      exact += ((now - last) / 1000) * (top / SECONDS);
      last = now;
      range.value = String(Math.min(top, whole ? Math.floor(exact) : exact));
      show();
      if (exact >= top) stop();
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
    return undefined;
  });
  queueMicrotask(show);
  return el("div.time", {}, play, range, output);
}

// Loss and measures over the epochs, with a rule at the slider's place.
function inStep(run) {
  const charts = [];
  const epochs = run.training?.epochs ?? {};
  if (epochs.mean_loss?.length) {
    charts.push(lines([{ name: "mean loss", x: epochs.epoch, y: epochs.mean_loss, colour: category(0) }],
      { x: "epoch", y: "Loss, nats" }, { height: 150 }));
  }
  const spaces = Object.keys(run.spaces);
  const over = (name, share) => {
    const series = spaces.map((space, at) => ({
      name: spaceName(space), x: run.epochs, dash: at ? "5 3" : undefined, colour: category(at),
      y: run.frames.map((frame) => frame[space][name] === null ? null : frame[space][name] * share),
    })).filter((one) => one.y.some((v) => v !== null));
    if (run.epochs.length < 2 || !series.length) return;
    const kind = unit(name);
    const title = shownName(name);
    charts.push(lines(series, { x: "epoch", y: `${title[0].toUpperCase()}${title.slice(1)}${kind ? `, ${kind}` : ""}` },
      { height: 150 }));
  };
  over("shown_knn_accuracy", 100);
  over("effective_rank", 1);
  return { charts, node: el("div.right", {}, charts.map((chart) => chart.node)) };
}
