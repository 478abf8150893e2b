// What is wrong and what to change; the numbers that say so.

import { copyable, el, prose, scroller } from "./dom.js";
import { heat } from "./charts.js";
import { exporter } from "./exports.js";
import { format, measure, measureName, own, parts } from "./numbers.js";
import { paperLink } from "./papers.js";
import { empty, panel, section } from "./panel.js";

const SIGNS = { critical: "✕", warning: "!", note: "i" };

const OPEN = 3; // findings that are open at first

// The light: what a glance has to tell.
function light(run) {
  const { diagnosis } = run;
  if (!diagnosis) return ["none", "Not diagnosed yet"];
  const worst = diagnosis.findings[0]?.severity ?? "note"; // the most severe comes first
  if (worst === "critical") return ["critical", "Something is wrong"];
  if (worst === "warning") return ["warning", "Worth a look"];
  return /^cannot judge|^can not judge/i.test(diagnosis.verdict) ? ["none", "Cannot be judged"] : ["good", "No problem found"];
}

function rowsOf(one, show) {
  if (!one.rows.length) return [];
  const said = el("span.said", { "aria-live": "polite" });
  const button = el("button.quiet", { type: "button" }, one.rows.length === 1 ? "Show its row on the map" : `Show its ${format(one.rows.length)} rows on the map`);
  button.addEventListener("click", () => {
    const n = show(one.rows);
    said.textContent = n === one.rows.length ? "" : `${format(n)} of them are among the samples shown`;
  });
  return [el("dt", {}, "rows"), el("dd", {}, button, " ", said)];
}

// Rows that the diagnosis lists, also where no finding speaks of them: each list on the map.
function lists(run, show) {
  const lists = run.diagnosis?.lists ?? [];
  if (!lists.length) return null;
  const rows = lists.map((one) => {
    const said = el("span.said", { "aria-live": "polite" });
    const button = el("button.quiet", { type: "button", "data-list": one.name }, "Show on the map");
    button.addEventListener("click", () => {
      const n = show(one.ids);
      said.textContent = n === one.ids.length ? "" : `${format(n)} of ${format(one.ids.length)} are among the samples shown`;
    });
    return el("tr", {}, el("th", { scope: "row" }, one.name.replaceAll("_", " ")), el("td", {}, format(one.total)),
      el("td", {}, prose(one.says)), el("td", {}, run.samples ? [button, " ", said] : null));
  });
  const head = ["list", "rows", "what they have in common", ""].map((name) => el("th", { scope: "col" }, name));
  return el("details.lists", {}, el("summary", {}, `Rows worth a look: ${lists.length} list${lists.length === 1 ? "" : "s"}`),
    scroller("Rows worth a look", el("table.plain", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
}

function finding(one, at, show) {
  const line = (name, text) => (text ? [el("dt", {}, name), el("dd", {}, prose(text))] : []);
  return el("li.finding", { class: `finding ${one.severity}` },
    el("div.mark", { "aria-hidden": "true" }, SIGNS[one.severity]),
    el("details", { open: at < OPEN },
      el("summary", {}, el("h4", {}, one.name.replaceAll("_", " "), el("span.severity", {}, one.severity))),
      el("dl", {}, line("evidence", one.evidence), rowsOf(one, show), line("cause", one.cause),
        line("advice", one.advice),
        one.change.length ? [el("dt", {}, "change"), el("dd", {}, one.change.map(copyable))] : [],
        line("expect", one.expect),
        one.paper ? [el("dt", {}, "paper"), el("dd", {}, paperLink(one.paper, el))] : [])));
}

// Where nothing is wrong and the numbers stand below, the verdict need not name them: an accuracy of
// other rows than those of the held-out one would only puzzle.
function plain({ diagnosis }, cards) {
  if (diagnosis.state !== "nothing found" || !diagnosis.n_checks || !cards) return diagnosis.verdict;
  const notes = diagnosis.findings.length;
  const said = notes === 0 ? "" : notes === 1 ? " One note is below." : ` ${notes} notes are below.`;
  return `${diagnosis.n_checks} checks found no problem.${said}`;
}

// Numbers of the last epoch, beside those of the first.
function headline(run) {
  const last = run.frames?.at(-1);
  const first = run.frames?.length > 1 ? run.frames[0] : null;
  const cards = [];
  const space = last && (last.h ? "h" : "z");
  const add = (name, value, before, note) => {
    if (value === null || value === undefined) return;
    const was = before === null || before === undefined ? null : `${measure(name, before)} before training`;
    const [text, kind] = parts(name, value);
    cards.push(el("div.number", {}, el("span.what", {}, measureName(name)),
      el("span.big", {}, text, el("span.unit", {}, kind)),
      el("span.was", {}, note ?? was ?? "")));
  };
  const results = run.evaluation?.results;
  if (results?.encoder?.knn_20 !== undefined) {
    add("knn_20", results.encoder.knn_20, null,
      `raw input ${measure("knn_20", results.input?.knn_20)}, untrained ${measure("knn_20", results.untrained?.knn_20)}`);
  }
  if (last) {
    // the diagnosis looks at more rows: its number is the one, wherever a measure is shown
    const told = (name, value) => run.diagnosis?.measures?.[name] ?? value;
    const judged = run.diagnosis?.measures?.[space === "z" ? "z_knn_accuracy" : "knn_accuracy"];
    // one accuracy: the held-out one where there is an evaluation
    const held = results?.encoder?.knn_20 !== undefined;
    if (!held && judged === undefined) add("shown_knn_accuracy", last[space].shown_knn_accuracy, first?.[space].shown_knn_accuracy);
    else if (!held) add(space === "z" ? "z_knn_accuracy" : "knn_accuracy", judged, null);
    const d = run.spaces[space].d;
    add("effective_rank", told(space === "z" ? "z_effective_rank" : "effective_rank", last[space].effective_rank), null, `of ${d} in ${space}`
      + (last.z && space === "h" ? `; ${format(told("z_effective_rank", last.z.effective_rank))} of ${run.spaces.z.d} in z` : ""));
    const seen = last.z ? "z" : "h";
    const named = (name) => (seen === "z" ? `z_${name}` : name);
    add(named("alignment"), told(named("alignment"), last[seen].alignment), first?.[seen].alignment);
    add(named("uniformity"), told(named("uniformity"), last[seen].uniformity), first?.[seen].uniformity);
  }
  return cards.length ? el("div.numbers", {}, cards) : null;
}

// The same name may have two values: of the rows that were diagnosed, and of those on the page.
function whose(run) {
  const n = run.diagnosis?.measures?.n;
  const shown = run.samples?.n;
  if (!n || !shown || n === shown) return null;
  return el("p.hint", {}, `The verdict, the findings and the numbers above were computed on ${format(n)} rows; the curves over the epochs `
    + `and the panels below the map on the ${format(shown)} samples shown.`);
}

function accuracies(run) {
  const results = run.evaluation?.results;
  if (!results) return null;
  const subjects = Object.keys(results);
  const names = [...new Set(subjects.flatMap((name) => Object.keys(results[name])))].filter((key) => own(run.evaluation.names, key));
  if (!names.length) return null;
  const called = subjects.map((name) => `${name === "input" ? "raw input" : name}${results[name].d ? ` (${format(results[name].d)})` : ""}`);
  const cells = names.map((key) => subjects.map((name) => results[name][key] ?? null));
  const seen = run.evaluation.test_rows_seen;
  const held = seen ? `Training used ${format(seen)} rows of the test set, so nothing here is held out. Accuracy` : "Held-out accuracy";
  return panel("Accuracy and two baselines",
    `${held} of nearest neighbours and linear probes: raw input, the untrained network, and the trained one.`,
    "chen2020simclr",
    heat(names.map((key) => run.evaluation.names[key]), called, cells, { corner: "features (dimensions)", name: "Accuracy and two baselines", text: (v) => (v === null ? "–" : `${format(100 * v)} %`) }));
}

// Search from image to text and back: the share of held-out pairs whose partner is among the nearest.
function searches(run) {
  const searches = run.evaluation?.searches ?? {};
  const names = Object.keys(searches);
  if (!names.length) return null;
  const ways = [...new Set(names.flatMap((name) => Object.keys(searches[name])))].filter((way) => !way.endsWith(", chance"));
  const sizes = [...new Set(names.flatMap((name) => ways.flatMap((way) => Object.keys(searches[name][way] ?? {}))))];
  const first = names.find((name) => ways.some((way) => searches[name][`${way}, chance`]));
  const rows = ways.flatMap((way) => sizes.map((size) => [way, size]));
  const cells = rows.map(([way, size]) => [searches[first]?.[`${way}, chance`]?.[size] ?? null, ...names.map((name) => searches[name][way]?.[size] ?? null)]);
  return panel("Retrieval",
    "How often the other half of a held-out pair is among the nearest, in both directions; next to chance and the untrained network.",
    "radford2021clip",
    heat(rows.map(([way, size]) => `${way.replaceAll("_", " ")}, among ${size.replace("recall_", "")}`), ["chance", ...names], cells,
      { corner: "partner is among the nearest", name: "Retrieval", text: (v) => (v === null ? "–" : `${format(100 * v)} %`) }));
}

// show(ids): the rows of a finding on the map; returns how many are there.
export function verdictSection(run, show) {
  const { diagnosis } = run;
  const { where } = run;
  const body = diagnosis
    ? [diagnosis.findings.length ? el("ol.findings", {}, diagnosis.findings.map((one, at) => finding(one, at, show))) : null]
    : [where ? empty("Not diagnosed yet. A diagnosis finds problems and suggests settings to change:",
      run.training ? `chiaro diagnose ${where} --out ${where}` : `chiaro diagnose ${where}`)
      : el("div.empty", {}, "Not diagnosed yet; `chiaroscuro.diagnose(embeddings)` finds problems and suggests changes.")];
  const more = diagnosis?.could_tell?.length
    ? el("details", {}, el("summary", {}, "Further checks, and the input they need"),
      el("ul.notes", {}, diagnosis.could_tell.map((text) => el("li", {}, text))))
    : null;
  const measures = Object.entries(diagnosis?.measures ?? {});
  const all = measures.length
    ? el("details", {}, el("summary", {}, `All ${measures.length} measures`),
      el("div.above", {}, exporter("All measures", null, () => [["measure", "name", "value"], ...measures.map(([name, value]) => [name, measureName(name), value])])),
      scroller("All measures",
        el("table.plain", {}, el("tbody", {}, measures.map(([name, value]) =>
          el("tr", {}, el("th", { scope: "row" }, measureName(name)), el("td", {}, measure(name, value))))))))
    : null;
  const cards = headline(run);
  const [state, words] = light(run);
  const sentence = el("div.light", { class: `light ${state}` }, el("span.lamp", { "aria-hidden": "true" }),
    el("div", {}, el("strong", {}, words), diagnosis ? el("p.verdict", {}, prose(plain(run, cards))) : null));
  return section("verdict", "Verdict", sentence, cards, whose(run), ...body, lists(run, show), all, more, accuracies(run), searches(run));
}
