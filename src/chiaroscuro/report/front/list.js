// The runs of a folder: filtered, sorted, and updated while they train.

import { choice, el, refill, scroller } from "./dom.js";
import { sparkline } from "./charts.js";
import { format } from "./numbers.js";

const COLUMNS = [
  ["name", "run", (run) => run.name],
  ["state", "state", (run) => run.state],
  ["epoch", "epoch", (run) => run.epoch],
  ["loss", "loss, nats", (run) => run.loss],
  ["online", "accuracy on training rows, %", (run) => run.online],
  ["accuracy", "held-out accuracy, %", (run) => run.accuracy],
  ["findings", "findings", (run) => run.findings],
  ["changed", "changed", (run) => run.changed],
];

export function listPage(content, address) {
  const state = { filter: "", only: "all", sort: "changed", down: true };
  const body = el("tbody");
  const head = el("tr");
  const count = el("p.hint", { "aria-live": "polite" });
  const picked = new Set();
  const compare = el("a.button", { hidden: true }, "Compare");
  const draw = () => {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const of = COLUMNS.find(([key]) => key === state.sort)[2];
    const shown = content.runs
      .filter((run) => words.every((word) => `${run.name} ${run.about}`.toLowerCase().includes(word)))
      .filter((run) => state.only === "all" || run.state === state.only)
      .sort((a, b) => order(of(a), of(b)) * (state.down ? -1 : 1));
    refill(head, el("th", { scope: "col" }, "pick"), COLUMNS.map(([key, name]) => {
      const now = state.sort === key;
      return el("th", { scope: "col", "aria-sort": now ? (state.down ? "descending" : "ascending") : "none" },
        el("button.link", { type: "button", on: { click: () => sortBy(key) } }, name, now ? (state.down ? " ↓" : " ↑") : ""));
    }), el("th", { scope: "col" }, "curve"));
    refill(body, shown.map(drawn));
    const none = content.runs.length ? "No run matches." : `No runs yet. This list updates when you train one: chiaro train digits --out ${content.folder}/first`;
    count.textContent = shown.length ? `${shown.length} of ${content.runs.length} runs` : none;
    compare.hidden = picked.size < 2;
    compare.setAttribute("href", address("report", { run: [...picked] }));
  };
  const sortBy = (key) => {
    state.down = state.sort === key ? !state.down : true;
    state.sort = key;
    draw();
  };
  // a row is drawn again only when its run has changed
  const rows = new Map();
  const drawn = (run) => {
    if (rows.get(run.id)?.run !== run) rows.set(run.id, { run, node: row(run) });
    return rows.get(run.id).node;
  };
  const row = (run) => {
    const box = el("input", { type: "checkbox", "aria-label": `Pick ${run.name}` });
    box.checked = picked.has(run.id);
    box.addEventListener("change", () => {
      if (box.checked) picked.add(run.id);
      else picked.delete(run.id);
      draw();
    });
    return el("tr", { "data-run": run.name }, el("td", {}, box),
      el("th", { scope: "row" }, el("a", { href: address("report", { run: [run.id] }) }, run.name), el("small.about", {}, run.about),
        run.problem ? el("small.problem", {}, run.problem) : null),
      cell("state", el("span.state", { class: `state ${run.state}` }, run.state)),
      cell("epoch", run.epoch === null ? "–" : `${format(run.epoch)} of ${format(run.epochs)}`),
      cell("loss", format(run.loss)),
      cell("online", run.online === null ? "–" : format(100 * run.online)),
      cell("accuracy", run.accuracy === null ? "–" : format(100 * run.accuracy)),
      cell("findings", run.findings === null ? "–" : format(run.findings)),
      cell("changed", moment(run.changed)),
      el("td", { "data-name": "curve" }, sparkline(run.curve)));
  };
  const search = el("input", { type: "search", id: "filter", placeholder: "name, objective, encoder…" });
  search.addEventListener("input", () => { state.filter = search.value; draw(); });
  draw();
  const node = el("main", { id: "top" }, el("h1", {}, "Runs"),
    el("p.explain", {}, `All runs in ${content.folder}. The list and its curves update during training. Times are in UTC.`),
    el("div.controls", {}, el("div.choice", {}, el("label", { for: "filter" }, "Filter"), search),
      choice("State", ["all", "starting", "training", "finished", "stopped", "unreadable"].map((name) => [name, name]), "all",
        (value) => { state.only = value; draw(); }), compare),
    count,
    scroller("Runs",
      el("table.plain.runs", {}, el("thead", {}, head), body)));
  // {rows: those that changed, gone: identifiers}
  const update = (news) => {
    const gone = new Set([...news.gone, ...news.rows.map((run) => run.id)]);
    content.runs = [...content.runs.filter((run) => !gone.has(run.id)), ...news.rows];
    for (const id of news.gone) { rows.delete(id); picked.delete(id); }
    draw();
  };
  return { node, update };
}

// A cell that knows its column's name, which stands beside it where the table is too narrow for columns.
function cell(key, content) {
  return el("td", { class: key === "loss" ? "loss" : null, "data-name": COLUMNS.find(([name]) => name === key)[1] }, content);
}

function moment(seconds) {
  const date = new Date(1000 * seconds);
  return seconds && Number.isFinite(date.getTime()) ? date.toISOString().slice(0, 16).replace("T", " ") : "–";
}

function order(a, b) {
  if (a === null) return -1;
  if (b === null) return 1;
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}
