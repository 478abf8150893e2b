// The map with its controls, the slider of the epochs, and the charts that go with it.

import { choice, el, refill, toggle } from "./dom.js";
import { colourings, spaceName } from "./data.js";
import { lines } from "./charts.js";
import { pointMap } from "./map.js";
import { measureName, unit } from "./numbers.js";
import { category } from "./palette.js";
import { empty, section } from "./panel.js";
import { paperLink } from "./papers.js";
import { grid } from "./samples.js";

const SECONDS = 8; // of a whole training, when played

export function exploreSection(run, follow) {
  if (!run.samples) {
    return section("map", "Map", empty("There are no embeddings here. Embed the data of the run:",
      "chiaro embed RUN --out RUN/embeddings/all.npz"));
  }
  const chosen = el("div.chosen", { "aria-live": "polite" });
  const hint = el("p.hint", {}, "Encircle points to see the samples behind them; hover to see one. Shift "
    + "and drag moves the map, Ctrl and wheel zooms. Keys: arrows, + − 0, full stop and comma, Enter, Escape.");
  const map = pointMap(run, {
    onSelect(selected) {
      if (!selected) return refill(chosen, hint);
      const found = grid(run, map.state.space, selected, map.lookAt);
      refill(chosen, found.node);
      if (selected.length === 1) found.open(selected[0]);
      return chosen;
    },
  });
  refill(chosen, hint);
  const { state } = map;
  const controls = el("div.controls");
  const rebuild = () => {
    const own = run.spaces[state.space];
    const lastOnly = own.pairs ? null : "two views are not in the file";
    refill(controls,
      choice("Space", Object.keys(run.spaces).map((s) => [s, `${spaceName(s)} (${run.spaces[s].d})`]), state.space,
        (value) => { state.space = value; change(); }),
      choice("Axes", Object.keys(own.maps).map((m) => [m, m]), state.map,
        (value) => { state.map = value; change(); }),
      choice("Colour", colourings(run, state.space).map(([key, name]) => [key, name]), state.colour,
        (value) => { state.colour = value; state.only = null; map.paint(); }),
      el("div.buttons", {},
        toggle("Lasso", state.lasso, (on) => { state.lasso = on; }, { title: "Off: dragging moves the map (L)" }),
        toggle("Pairs", state.pairs, (on) => { state.pairs = on; map.ask(); },
          { disabled: !own.pairs, title: lastOnly ?? "Joins two views of a sample; on PCA, at the last epoch" }),
        toggle("Graph", state.edges, (on) => { state.edges = on; map.ask(); }, { title: "Edges to nearest neighbours" }),
        el("button.quiet", { type: "button", on: { click: map.fit } }, "Show all")));
  };
  const change = () => {
    if (!(state.map in run.spaces[state.space].maps)) state.map = "PCA";
    map.paint();
    if (state.selected) map.select(state.selected);
    rebuild();
  };
  rebuild();
  map.stage.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "l") return;
    state.lasso = !state.lasso;
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
  const about = el("p.explain", {}, "Each point is a sample, placed by the direction of its embedding: ",
    el("em", {}, "PCA"), " shows the two directions of largest variance, ", el("em", {}, "spectral"),
    " the two slowest modes of the graph of nearest neighbours (", paperLink("tan2024", el), "). ",
    "Points that the model finds alike are close. ", run.sentence);
  const section_ = section("map", "Map", about, controls,
    el("div.explore", {}, el("div.left", {}, map.stage, map.key, time), node), chosen);
  section_.map = map;
  return section_;
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
      ? empty("Training left no snapshots, so the points cannot move. Let it leave some:",
        "chiaro train PRESET --out RUN")
      : el("p.hint", {}, "One moment only: a run with snapshots shows how the points got here.");
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
    const title = measureName(name);
    charts.push(lines(series, { x: "epoch", y: `${title[0].toUpperCase()}${title.slice(1)}${kind ? `, ${kind}` : ""}` },
      { height: 150 }));
  };
  over("shown_knn_accuracy", 100);
  over("effective_rank", 1);
  return { charts, node: el("div.right", {}, charts.map((chart) => chart.node)) };
}
