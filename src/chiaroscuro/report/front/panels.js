// The panels below the map: training, geometry, graph, views, factors, labs, how it was made.

import { copyable, el, scroller } from "./dom.js";
import { array, spaceName } from "./data.js";
import { bars, heat, lines, plane } from "./charts.js";
import { inside } from "./explore.js";
import { format, measureName, own, unit } from "./numbers.js";
import { category } from "./palette.js";
import { columns, empty, panel, section } from "./panel.js";

const DURING = { online_knn: "Measured on a few training rows after each epoch: not a held-out accuracy, and not used to choose anything." };
const HIDDEN = new Set(["step", "epoch", "mean_loss", "seconds", "images_per_second"]);

export function trainingSection(run) {
  if (!run.training) return null;
  const holder = el("div");
  const draw = () => {
    const { steps, epochs } = run.training;
    const panels = [];
    const bySteps = steps.loss?.length > 2 || (steps.loss?.length && !epochs.mean_loss?.length);
    if (bySteps) {
      panels.push(panel("Loss", "The objective at each recorded step, in nats. A loss of log(number of candidates) means that nothing was learned.",
        "oord2018cpc", lines([{ name: "loss", x: steps.step, y: steps.loss, colour: category(0) }],
          { x: "step", y: "Loss, nats" }).node));
    }
    if (!bySteps && epochs.mean_loss?.length) {
      panels.push(panel("Loss", "The mean of the objective over each epoch; there were too few steps to show them singly.", "oord2018cpc",
        lines([{ name: "mean loss", x: epochs.epoch, y: epochs.mean_loss, colour: category(0) }],
          { x: "epoch", y: "Loss, nats" }, { marks: true }).node));
    }
    if (steps.lr?.length > 1) {
      panels.push(panel("Learning rate", "The learning rate at each step: warm-up, then the schedule.", null,
        lines([{ name: "learning rate", x: steps.step, y: steps.lr, colour: category(2) }],
          { x: "step", y: "Learning rate" }).node));
    }
    for (const name of Object.keys(epochs).filter((key) => !HIDDEN.has(key))) {
      const share = unit(name) === "%" ? 100 : 1;
      const at = epochs[name].map((v, k) => [epochs.epoch[k], v]).filter(([, v]) => v !== null);
      if (!at.length) continue;
      const [x, y] = [at.map(([epoch]) => epoch), at.map(([, v]) => share * v)];
      const title = measureName(name);
      panels.push(panel(title[0].toUpperCase() + title.slice(1), own(DURING, name) ?? "Measured during training; not used to choose anything.", null,
        lines([{ name: title, x, y, colour: category(1) }],
          { x: "epoch", y: unit(name) || "value" }, { marks: at.length < 40 }).node));
    }
    return panels.length ? panels : [empty("Nothing is recorded yet. Curves appear here as training proceeds.")];
  };
  holder.append(columns(...draw()));
  const node = section("training", "Training", holder);
  node.refresh = () => holder.replaceChildren(columns(...draw()));
  return node;
}

export function geometrySection(run, followers) {
  if (!run.samples) return null;
  const spaces = Object.keys(run.spaces);
  const spectra = (at) => spaces.map((space, k) => {
    const s = run.frames[at][space].spectrum;
    return { name: spaceName(space), x: s.map((_, i) => i + 1), y: s.map((v) => v / (s[0] || 1)), colour: category(k) };
  });
  const top = run.frames.length - 1;
  const spectrum = lines(spectra(top), { x: "rank", y: "Singular value, share of the largest", title: "Spectrum" },
    { log: { y: true }, range: { y: [least(run), 1] } });
  const hist = el("div.columns");
  const histograms = spaces.map((space) => {
    const width = (at) => densities(run.frames[at][space].similarities);
    const chart = lines(width(top), { x: "cosine", y: `Density, ${spaceName(space)}` },
      { height: 190, range: { x: [-1, 1], y: [0, undefined] } });
    hist.append(chart.node);
    return (at) => chart.update(width(at));
  });
  const paths = spaces.filter((space) => run.frames[top][space].alignment !== null).map((space, k) => ({
    name: spaceName(space), colour: category(k), at: run.epochs,
    x: run.frames.map((frame) => frame[space].alignment), y: run.frames.map((frame) => frame[space].uniformity),
  }));
  const path = paths.length ? plane(paths, { x: "alignment: squared distance of views", y: "Uniformity, nats" }) : null;
  let shown = top;
  followers.push((at, epoch) => {
    path?.cursor(run.epochs[at] ?? epoch);
    if (at === shown) return;
    shown = at;
    spectrum.update(spectra(at));
    for (const update of histograms) update(at);
  });
  const last = run.frames[top];
  // the diagnosis looks at more rows: where it has the rank, that is it
  const rank = (space) => run.diagnosis?.measures?.[space === "h" ? "effective_rank" : `${space}_effective_rank`] ?? last[space].effective_rank;
  const ranks = spaces.map((space) => `${format(rank(space))} of ${run.spaces[space].d} in ${space}`);
  return section("geometry", "Geometry", columns(
    panel("Spectrum", `Singular values of the embeddings. A steep fall means that few dimensions are used. Effective rank: ${ranks.join(", ")}.`,
      ["jing2022directclr", "roy2007rank"], spectrum.node),
    panel("Alignment and uniformity", "The path of training. Further left, views of a sample agree better; further down, samples are spread more evenly over the sphere.",
      "wang2020alignuniform",
      path ? path.node : el("div.empty", {}, "Two views of each sample are needed (h1 and h2, or z1 and z2); snapshots of a training run contain them.")),
    ...[economyPanel(run)].filter(Boolean),
    wide(panel("Similarities", "Cosine similarities of positives, negatives, and false negatives (other samples of the same label, which the objective pushes apart).",
      "cosentino2022", hist))));
}

// What neighbours keep of fewer dimensions, in three orders.
function economyPanel(run) {
  const economy = run.diagnosis?.economy;
  if (!economy) return null;
  const names = { first: "first dimensions", variance: "of largest variance", principal: "principal" };
  const series = Object.entries(economy.lines).map(([key, y], k) => ({ name: own(names, key) ?? key, x: economy.sizes, y: y.map((v) => 100 * v), colour: category(k) }));
  const said = economy.what === "accuracy" ? "Accuracy of 20 nearest neighbours" : "Share of the ten nearest neighbours that are kept";
  return panel("Fewer dimensions", `${said} when only some dimensions are used: how small the embeddings can be.`,
    "kusupati2022", lines(series, { x: "dimensions kept", y: `${economy.what === "accuracy" ? "Accuracy" : "Recall"}, %` }, { marks: true, log: { x: true } }).node);
}

// Where the axis of the spectra ends: a power of ten below all of them, over all epochs.
function least(run) {
  let low = 0.1;
  for (const frame of run.frames) {
    for (const space of Object.keys(run.spaces)) {
      const s = frame[space].spectrum;
      for (const v of s) if (v > 0 && v / s[0] < low) low = v / s[0];
    }
  }
  return Math.max(1e-8, 10 ** Math.floor(Math.log10(low)));
}

function wide(node) {
  node.classList.add("wide");
  return node;
}

function densities(cosines) {
  const names = [["negatives", "negatives", 7], ["false_negatives", "false negatives", 1], ["positives", "positives", 2]];
  return names.filter(([key]) => cosines[key]).map(([key, name, colour]) => {
    const { density } = cosines[key];
    const width = 2 / density.length;
    return { name, x: density.map((_, at) => -1 + (at + 0.5) * width), y: density, colour: category(colour), area: true };
  });
}

export function graphSection(run) {
  if (!run.samples) return null;
  const panels = Object.entries(run.spaces).flatMap(([space, own]) => {
    const { graph } = own;
    const values = graph.eigenvalues;
    // the gap after the first says only that the graph hangs together
    const gap = values.slice(2).reduce((best, v, at) => (v - values[at + 1] > best[0] ? [v - values[at + 1], at + 2] : best), [0, 2]);
    const eigen = panel(`Graph of ${spaceName(space)}`,
      `Laplacian eigenvalues of the nearest-neighbour graph (${format(graph.n_edges)} edges). A gap after the k‑th suggests k clusters, here ${gap[1]}.`,
      "tan2024", lines([{ name: "eigenvalue", x: values.map((_, at) => at + 1), y: values, colour: category(4) }],
        { x: "index", y: "Eigenvalue" }, { marks: true, range: { y: [0, undefined] }, height: Math.max(210, Math.min(420, 26 * (graph.table?.length ?? 0))) }).node);
    if (!graph.table) return [eigen];
    const rows = graph.table.map((_, at) => `cluster ${at + 1}`);
    const totals = graph.table.map((line) => Math.max(1, line.reduce((a, b) => a + b, 0)));
    const order = sorted(graph.table);
    return [eigen, panel(`Clusters of ${spaceName(space)}`,
      `Spectral clusters, found without labels, against the labels: purity ${format(100 * graph.purity)} %, normalised mutual information ${format(graph.nmi)}.`,
      "tan2024", heat(order.map((r) => rows[r]), run.samples.labels.names, order.map((r) => graph.table[r]),
        { corner: "samples", name: `Clusters of ${spaceName(space)}`, text: (v) => (v ? format(v) : "·"), share: (v, r) => v / totals[order[r]] }))];
  });
  return section("graph", "Similarity graph", columns(...panels));
}

function sorted(table) {
  const main = table.map((line) => line.indexOf(Math.max(...line)));
  return table.map((_, at) => at).sort((a, b) => main[a] - main[b]);
}

export function viewsSection(run) {
  if (!run.samples) return null;
  const sensitivity = run.sensitivity;
  const names = run.samples.labels?.names ?? [];
  const sensitive = sensitivity
    ? Object.entries(sensitivity).map(([space, one]) => {
      const items = [{ name: "all", value: one.all, text: format(one.all), colour: category(0) }];
      (one.by_class ?? []).forEach((value, c) => value !== null
        && items.push({ name: names[c] ?? String(c), value, text: format(value), colour: category(5) }));
      return el("div", {}, el("h4", {}, spaceName(space)), bars(items.slice(0, 21), { most: 1.05, name: `Sensitivity of ${spaceName(space)}` }));
    })
    : [el("div.empty", {}, "Two views of each sample are needed (h1 and h2, or z1 and z2); snapshots of a training run contain them.")];
  const factors = run.factors;
  const table = factors
    ? heat(factors.targets, factors.layers.map(spaceName), factors.shares,
      { corner: "R²", name: "Factors through the layers", text: (v) => (v === null ? "–" : v <= 0.005 ? "0" : format(v, 2)) })
    : el("div.empty", {}, "The embeddings have no labels or factors to predict from the layers.");
  return section("views", "Views and factors", columns(
    wide(panel("Sensitivity to augmentation", "Distance between two views of a sample, divided by the distance between different samples: 0 means invariant, 1 no better than chance.",
      "chen2020simclr", el("div.columns", {}, ...sensitive))),
    movedPanel(run),
    panel("Factors through the layers", `How well a linear map predicts each factor from each layer (R² on held-out rows): what is kept, and what the projector discards.${factors ? ` From the diagnosis if it has them, otherwise fitted to half of ${format(factors.n)} rows.` : ""}`,
      "rusak2022", table)));
}

// Which recorded parameter of the views moves h: shares of the variance of the movement.
function movedPanel(run) {
  const prefix = "movement_by_";
  const shares = Object.entries(run.diagnosis?.measures ?? {})
    .filter(([name, value]) => name.startsWith(prefix) && Number.isFinite(value))
    .sort((a, b) => b[1] - a[1]).slice(0, 12);
  const items = shares.map(([name, value]) => ({
    name: name.slice(prefix.length).replaceAll("_", " "), value: Math.max(0, value),
    text: value > 0 && value < 0.001 ? "< 0.1 %" : `${format(100 * Math.max(0, value), 2)} %`, colour: category(1),
  }));
  return panel("What moves the embedding",
    "Which parameters of the augmentation move h most: the share of the variance of the distance between two views that each explains on its own.",
    "cosentino2022", items.length ? bars(items, { most: 1.05 * Math.max(0.05, ...items.map((one) => one.value)), name: "What moves the embedding" })
      : run.diagnosis ? el("div.empty", {}, "No parameters were recorded for the views of this run; they are for image augmentations and for data that are rendered anew.")
        : run.made && run.where ? empty("The parameters of the views are recorded when a run is diagnosed:", `chiaro diagnose ${run.where} --out ${run.where}`)
        : el("div.empty", {}, "The parameters of the views are recorded when a training run is diagnosed."));
}

const VERDICTS = { holds: "✓ holds", fails: "✕ fails", erratum: "≠ erratum", inconclusive: "? inconclusive", not_run: "– not run" };

export function labsSection(run) {
  const intro = "A paper's prediction and what was observed here, judged by a rule set before the run.";
  if (!run.labs.length) {
    return run.samples ? null : section("labs", "Labs", run.where ? empty(`${intro} None is here:`, `chiaro reproduce --all --out ${inside(run.where, "labs")}`) : el("div.empty", {}, `${intro} None is here.`));
  }
  const panels = run.labs.map((lab) => {
    const rows = (lab.claims ?? []).map((claim) => el("tr", {},
      el("th", { scope: "row" }, String(claim.id ?? "")),
      el("td", {}, String(claim.statement ?? "")),
      el("td", {}, show(claim.paper)), el("td", {}, show(claim.ours)),
      el("td", { class: `claim ${own(VERDICTS, claim.verdict) ? claim.verdict : ""}` }, own(VERDICTS, claim.verdict) ?? String(claim.verdict))));
    const head = ["claim", "statement", "predicted", "observed", "verdict"].map((name) => el("th", { scope: "col" }, name));
    const picture = lab.figure ? el("img.figure", { src: lab.figure, alt: `Figure of ${lab.lab}: predicted against observed` }) : null;
    return panel(`${lab.lab}`, `${intro} Scale ${lab.scale}.`, String(lab.paper ?? ""), picture,
      scroller(`Claims of ${lab.lab}`, el("table.plain.claims", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
  });
  return section("labs", "Labs", ...panels);
}

function show(value) {
  if (typeof value === "number") return format(value);
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return value.slice(0, 8).map(show).join(", ") + (value.length > 8 ? ", …" : "");
  if (typeof value === "object") return Object.entries(value).map(([k, v]) => `${k} ${show(v)}`).join("; ");
  return String(value);
}

export function madeSection(run) {
  const { made } = run;
  if (!made) {
    return section("made", "How it was made", empty("An embeddings file does not record how it was made; a training run does. For example:",
      "chiaro train digits --out runs/first", "chiaro report runs/first --out first.html"));
  }
  const table = (values) => el("table.plain", {}, el("tbody", {}, Object.entries(values).map(([name, value]) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value === "None" ? "not installed" : String(value))))));
  return section("made", "How it was made",
    made.command ? copyable(made.command) : null,
    columns(
      panel("Settings", "All settings of the run, including defaults.", null,
        el("pre", { tabindex: "0" }, made.settings)),
      panel("Environment", "Versions and hardware; user and host names are not recorded.", null,
        scroller("Environment", table(made.environment)))),
    run.notes.length ? el("ul.notes", {}, run.notes.map((note) => el("li", {}, note))) : null);
}

export function countOf(run) {
  return run.samples ? array(Object.values(run.spaces)[0].norms).length : 0;
}
