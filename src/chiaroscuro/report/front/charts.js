// Small charts in SVG. Each takes plain numbers and returns {node, …}; none knows what it shows.

import { el, svg, responsive, refill, scroller, unique } from "./dom.js";
import { exporter, offstage, textWidth } from "./exports.js";
import { extent, format, logTicks, tickText, ticks } from "./numbers.js";
import { category } from "./palette.js";

const PAD = { top: 10, right: 14, bottom: 34, left: 50 };
const BASE = { ...PAD };

// Margins and heights follow the size of the text.
function grown(height) {
  const share = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  for (const side of Object.keys(BASE)) PAD[side] = BASE[side] * share;
  return height * share;
}

function axis(low, high, from, to, log) {
  const place = log
    ? (v) => from + ((Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low) || 1)) * (to - from)
    : (v) => from + ((v - low) / (high - low || 1)) * (to - from);
  const back = (p) => {
    const share = (p - from) / (to - from);
    return log ? Math.exp(Math.log(low) + share * Math.log(high / low)) : low + share * (high - low);
  };
  return { place, back, ticks: log ? logTicks(low, high) : ticks(low, high) };
}

// What is counted has whole ticks.
const COUNTED = new Set(["epoch", "step", "rank", "index"]);
const FEW = 12; // points of a line that are also drawn as dots

function frame(width, height, x, y, names) {
  const bottom = height - PAD.bottom;
  const parts = [];
  for (const tick of y.ticks) {
    const at = y.place(tick);
    parts.push(svg("line.grid", { x1: PAD.left, x2: width - PAD.right, y1: at, y2: at }));
    parts.push(svg("text.tick", { x: PAD.left - 8, y: at + 4, "text-anchor": "end" }, tickText(tick)));
  }
  for (const tick of x.ticks.filter((v) => !COUNTED.has(names.x) || Number.isInteger(v))) {
    const at = x.place(tick);
    parts.push(svg("text.tick", { x: at, y: bottom + PAD.bottom / 2, "text-anchor": "middle" }, tickText(tick)));
  }
  parts.push(svg("line.base", { x1: PAD.left, x2: width - PAD.right, y1: bottom, y2: bottom }));
  parts.push(svg("text.axis", { x: width - PAD.right, y: height - 3, "text-anchor": "end" }, names.x));
  return parts;
}

function path(xs, ys, x, y) {
  let d = "";
  let drawing = false;
  for (let at = 0; at < xs.length; at += 1) {
    const value = ys[at];
    if (value === null || value === undefined || !Number.isFinite(value)) {
      drawing = false;
      continue;
    }
    d += `${drawing ? "L" : "M"}${x.place(xs[at]).toFixed(1)} ${y.place(value).toFixed(1)}`;
    drawing = true;
  }
  return d;
}

function legend(series) {
  if (series.length < 2) return null;
  const keys = series.map(({ name, colour, dash }) => {
    const line = svg("line", { x1: 0, x2: 20, y1: 5, y2: 5, "stroke-width": 2.5, "stroke-dasharray": dash });
    line.style.stroke = colour;
    return el("li", {}, svg("svg", { width: 20, height: 10, "aria-hidden": "true" }, line), name);
  });
  return el("ul.legend", {}, keys);
}

// series: [{name, x, y, colour, dash?, area?}]; names: {x, y, title}; log: {x?, y?}
export function lines(series, names, { log = {}, height: tall = 210, range = {}, marks = false } = {}) {
  const holder = el("div.chart");
  let cursor = null;
  let current = series;
  const node = el("figure.plot", {}, el("figcaption", {}, el("span", {}, names.y),
    exporter(names.title ?? names.y, () => holder.querySelector("svg"), () => table(current, names))), holder);
  const keys = el("div");
  node.append(keys);
  const id = unique("chart");
  let moveCursor = () => {};
  const draw = (width) => {
    const height = grown(tall);
    const usable = (values, isLog) => (isLog ? values.filter((v) => v > 0) : values);
    let [x0, x1] = extent(usable(current.flatMap((s) => [...s.x]), log.x));
    let [y0, y1] = extent(usable(current.flatMap((s) => [...s.y]), log.y));
    if (range.y) [y0, y1] = [range.y[0] ?? y0, range.y[1] ?? y1];
    if (range.x) [x0, x1] = [range.x[0] ?? x0, range.x[1] ?? x1];
    // one place only: from 0, so that the dot stands where one looks for it
    if (x0 === x1) [x0, x1] = log.x ? [x0 / 2, x1 * 2] : x1 > 0 ? [0, x1] : [x0 - 1, x1 + 1];
    if (y0 === y1) [y0, y1] = log.y ? [y0 / 2, y1 * 2] : y1 > 0 ? [0, 1.25 * y1] : [y0 - 1, y1 + 1];
    const x = axis(x0, x1, PAD.left, width - PAD.right, log.x);
    const y = axis(y0, y1, height - PAD.bottom, PAD.top, log.y);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": id });
    picture.append(svg("title", { id }, describe(current, names)), ...frame(width, height, x, y, names));
    // no line leaves its panel, whatever the range
    const clip = unique("clip");
    const inner = svg("g", { "clip-path": `url(#${clip})` });
    picture.append(svg("clipPath", { id: clip }, svg("rect", {
      x: PAD.left - 4, y: PAD.top - 4, width: Math.max(0, width - PAD.left - PAD.right + 8), height: height - PAD.top - PAD.bottom + 8,
    })), inner);
    for (const one of current) {
      const ys = log.y ? one.y.map((v) => (v > 0 ? v : null)) : one.y;
      if (one.area) {
        const base = height - PAD.bottom;
        const closed = `${path(one.x, ys, x, y)}L${x.place(one.x.at(-1))} ${base}L${x.place(one.x[0])} ${base}Z`;
        const area = svg("path.area", { d: closed });
        area.style.fill = one.colour;
        inner.append(area);
      }
      const line = svg("path.line", { d: path(one.x, ys, x, y), "stroke-dasharray": one.dash });
      line.style.stroke = one.colour;
      inner.append(line);
      if (marks || one.x.length <= FEW) {
        for (let at = 0; at < one.x.length; at += 1) {
          if (!Number.isFinite(ys[at] ?? NaN)) continue;
          const dot = svg("circle", { cx: x.place(one.x[at]), cy: y.place(ys[at]), r: 3 });
          dot.style.fill = one.colour;
          inner.append(dot);
        }
      }
    }
    const rule = svg("line.cursor", { y1: PAD.top, y2: height - PAD.bottom, visibility: "hidden" });
    const hover = svg("line.rule", { y1: PAD.top, y2: height - PAD.bottom, visibility: "hidden" });
    const readout = el("div.readout", { hidden: true });
    picture.append(rule, hover);
    moveCursor = () => {
      const seen = cursor !== null && cursor >= x0 && cursor <= x1;
      rule.setAttribute("visibility", seen ? "visible" : "hidden");
      if (seen) for (const end of ["x1", "x2"]) rule.setAttribute(end, x.place(cursor));
    };
    moveCursor();
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const at = x.back(((event.clientX - box.left) / box.width) * width);
      const texts = current.map((one) => {
        const near = closest(one.x, at);
        return el("div", {}, `${one.name}: ${format(one.y[near])} at ${format(one.x[near])}`);
      });
      refill(readout, texts);
      readout.hidden = false;
      const px = x.place(Math.min(x1, Math.max(x0, at)));
      hover.setAttribute("visibility", "visible");
      for (const end of ["x1", "x2"]) hover.setAttribute(end, px);
      readout.classList.toggle("left", px > width / 2);
    });
    picture.addEventListener("pointerleave", () => {
      readout.hidden = true;
      hover.setAttribute("visibility", "hidden");
    });
    refill(holder, picture, readout);
    refill(keys, legend(current));
  };
  const redraw = responsive(holder, draw);
  return {
    node,
    cursor(at) {
      cursor = at;
      moveCursor();
    },
    update(next) {
      current = next;
      redraw();
    },
  };
}

// The data of a chart: a line for each x, a column for each series.
function table(series, names) {
  const xs = [...new Set(series.flatMap((one) => [...one.x]))].sort((a, b) => a - b);
  const maps = series.map((one) => new Map([...one.x].map((x, at) => [x, one.y[at]])));
  return [[names.x, ...series.map((one) => one.name)], ...xs.map((x) => [x, ...maps.map((map) => map.get(x) ?? null)])];
}

function closest(xs, at) {
  let best = 0;
  for (let i = 1; i < xs.length; i += 1) {
    if (Math.abs(xs[i] - at) < Math.abs(xs[best] - at)) best = i;
  }
  return best;
}

function describe(series, names) {
  const parts = series.map((one) => {
    const values = [...one.y].filter((v) => Number.isFinite(v ?? NaN));
    return `${one.name} from ${format(values[0])} to ${format(values.at(-1))}`;
  });
  return `${names.title ?? names.y} against ${names.x}: ${parts.join("; ")}.`;
}

// A path through a plane: [{name, x, y, colour, at: labels}]; the last point is large.
export function plane(series, names, { height: tall = 300 } = {}) {
  const holder = el("div.chart");
  const data = () => [["series", "epoch", names.x, names.y],
    ...series.flatMap((one) => one.x.map((_, at) => [one.name, one.at[at], one.x[at], one.y[at]]))];
  const node = el("figure.plot", {}, el("figcaption", {}, el("span", {}, names.y),
    exporter(names.title ?? names.y, () => holder.querySelector("svg"), data)), holder, el("div"));
  const id = unique("plane");
  let position = null;
  let mark = () => {};
  const draw = (width) => {
    const height = grown(tall);
    const pad = (low, high) => [low - 0.08 * (high - low || 1), high + 0.08 * (high - low || 1)];
    const x = axis(...pad(...extent(series.flatMap((s) => s.x))), PAD.left, width - PAD.right);
    const y = axis(...pad(...extent(series.flatMap((s) => s.y))), height - PAD.bottom, PAD.top);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": id });
    picture.append(svg("title", { id }, describe(series, names)), ...frame(width, height, x, y, names));
    const rings = [];
    for (const one of series) {
      const line = svg("path.line", { d: path(one.x, one.y, x, y) });
      line.style.stroke = one.colour;
      picture.append(line);
      one.x.forEach((_, at) => {
        const last = at === one.x.length - 1;
        const dot = svg("circle", { cx: x.place(one.x[at]), cy: y.place(one.y[at]), r: last ? 6 : 2.5 });
        dot.style.fill = one.colour;
        dot.append(svg("title", {}, `${one.name}, epoch ${one.at[at]}`));
        picture.append(dot);
      });
      const ring = svg("circle.ring", { r: 9, visibility: "hidden" });
      rings.push([ring, one]);
      picture.append(ring);
    }
    mark = () => {
      for (const [ring, one] of rings) {
        const at = one.at.indexOf(position);
        ring.setAttribute("visibility", at < 0 ? "hidden" : "visible");
        if (at >= 0) {
          ring.setAttribute("cx", x.place(one.x[at]));
          ring.setAttribute("cy", y.place(one.y[at]));
        }
      }
    };
    mark();
    refill(holder, picture);
    refill(node.lastChild, legend(series));
  };
  responsive(holder, draw);
  return {
    node,
    cursor(at) {
      position = at;
      mark();
    },
  };
}

// A table whose cells are shaded by their share in [0, 1].
export function heat(rows, columns, cells, { corner = "", text = format, share = (v) => v, name } = {}) {
  const head = el("tr", {}, el("th", { scope: "col" }, corner));
  for (const name of columns) head.append(el("th", { scope: "col" }, name));
  const body = rows.map((name, r) => {
    const line = el("tr", {}, el("th", { scope: "row" }, name));
    for (const value of cells[r]) {
      const cell = el("td", {}, text(value));
      const part = value === null || value === undefined ? 0 : Math.max(0, Math.min(1, share(value, r)));
      cell.style.setProperty("--share", part.toFixed(3));
      line.append(cell);
    }
    return line;
  });
  const title = name ?? `Table: ${corner || rows.length}`;
  return el("div", {}, el("div.above", {}, exporter(title, () => shaded(title, [corner, ...columns], rows, cells, text, share),
    () => [[corner, ...columns], ...rows.map((row, r) => [row, ...cells[r]])])),
    scroller(title, el("table.heat", {}, el("thead", {}, head), el("tbody", {}, body))));
}

// The table as a drawing, to be saved.
function shaded(title, head, rows, cells, text, share) {
  const side = 26;
  const texts = [head, ...rows.map((row, r) => [row, ...cells[r].map(text)])];
  const widths = head.map((_, c) => Math.max(40, ...texts.map((line) => textWidth(line[c]) + 16)));
  const lefts = widths.map((_, c) => widths.slice(0, c).reduce((a, b) => a + b, 0));
  const [ink, tone, deep] = ["--ink", "--heat", "--deep"].map((name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  const picture = svg("svg", { viewBox: `0 0 ${lefts.at(-1) + widths.at(-1) + 8} ${side * texts.length + 8}` }, svg("title", {}, title));
  texts.forEach((line, at) => line.forEach((value, c) => {
    const [x, y] = [4 + lefts[c], 4 + side * at];
    if (at && c) {
      const part = cells[at - 1][c - 1] === null || cells[at - 1][c - 1] === undefined ? 0 : Math.max(0, Math.min(1, share(cells[at - 1][c - 1], at - 1)));
      const cell = svg("rect", { x: x + 1, y: y + 1, width: widths[c] - 2, height: side - 2, rx: 3 });
      cell.style.fill = `rgb(${tone.replaceAll(" ", ", ")})`;
      cell.style.fillOpacity = String(part * Number(deep));
      picture.append(cell);
    }
    const word = svg("text", { x: c ? x + widths[c] / 2 : x + widths[c] - 8, y: y + 17, "text-anchor": c ? "middle" : "end" }, value);
    word.style.fontSize = "12px";
    if (at && c) word.style.fill = ink;
    picture.append(word);
  }));
  return offstage(picture);
}

function barred(title, items, top) {
  const [side, track] = [24, 360];
  const left = 12 + Math.max(...items.map((one) => textWidth(one.name)));
  const right = 16 + Math.max(...items.map((one) => textWidth(one.text)));
  const picture = svg("svg", { viewBox: `0 0 ${left + track + right} ${side * items.length + 8}` }, svg("title", {}, title));
  items.forEach(({ name, value, text, colour }, at) => {
    const y = 4 + side * at;
    const bar = svg("rect", { x: left, y: y + 6, width: (track * Math.max(0, Math.min(1, (value ?? 0) / top))).toFixed(1), height: 12, rx: 3 });
    bar.style.fill = colour ?? category(0);
    const words = [svg("text", { x: 4, y: y + 16 }, name), svg("text", { x: left + track + right - 4, y: y + 16, "text-anchor": "end" }, text)];
    for (const word of words) word.style.fontSize = "12px";
    picture.append(bar, ...words);
  });
  return offstage(picture);
}

// Horizontal bars: [{name, value, text, colour}].
export function bars(items, { most = null, name = "Bars" } = {}) {
  const top = most ?? Math.max(...items.map((one) => one.value ?? 0), 1e-12);
  const lines = items.map(({ name, value, text, colour }) => {
    const bar = el("span.bar");
    bar.style.width = `${(100 * Math.max(0, Math.min(1, (value ?? 0) / top))).toFixed(1)}%`;
    if (colour) bar.style.background = colour;
    return el("li", {}, el("span.name", {}, name), el("span.track", {}, bar), el("span.value", {}, text));
  });
  return el("div", {}, el("div.above", {}, exporter(name, () => barred(name, items, top), () => [["name", "value"], ...items.map((one) => [one.name, one.value])])),
    el("ul.bars", {}, lines));
}

export function sparkline(values, width = 120, height = 28) {
  const [low, high] = extent(values);
  const x = axis(0, Math.max(1, values.length - 1), 2, width - 2);
  const y = axis(low, high === low ? low + 1 : high, height - 3, 3);
  const line = svg("path.line", { d: path(values.map((_, at) => at), values, x, y) });
  return svg("svg.spark", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, line);
}
