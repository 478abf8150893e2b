// Charts and selections as files: SVG, PNG and CSV, made in the page; nothing is sent anywhere.

import { el, svg } from "./dom.js";

export function download(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Rows of cells as CSV (RFC 4180). A cell that a spreadsheet would run as a formula gets a quote.
export function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) && !/^-?[\d.]+$/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

export function fileName(text) {
  return text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "chart";
}

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin",
  "stroke-linecap", "font-family", "font-size", "visibility"];

// A drawing that is made only to be saved: styles are computed of what is on the page.
export function offstage(picture) {
  picture.setAttribute("class", "offstage");
  document.body.append(picture);
  setTimeout(() => picture.remove());
  return picture;
}

// Pixels that a text takes in a drawing.
export function textWidth(text) {
  const context = (textWidth.context ??= el("canvas").getContext("2d"));
  context.font = "12px sans-serif";
  return Math.ceil(context.measureText(text).width);
}

// A picture of the page with its styles written into it, so that it looks the same elsewhere.
export function standalone(picture) {
  const copy = picture.cloneNode(true);
  const [mine, theirs] = [picture, copy].map((node) => [node, ...node.querySelectorAll("*")]);
  mine.forEach((node, at) => {
    const computed = getComputedStyle(node);
    for (const name of STYLES) {
      const value = computed.getPropertyValue(name);
      if (value) theirs[at].setAttribute(name, value);
    }
    theirs[at].removeAttribute("style");
    theirs[at].removeAttribute("class");
  });
  const [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const ground = copy.ownerDocument.createElementNS("http://www.w3.org/2000/svg", "rect");
  ground.setAttribute("width", "100%");
  ground.setAttribute("height", "100%");
  ground.setAttribute("fill", getComputedStyle(document.documentElement).getPropertyValue("--card").trim() || "#fff");
  copy.prepend(ground);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

async function raster({ text, width, height }, scale = 3) {
  const image = new Image();
  await new Promise((done, failed) => {
    image.addEventListener("load", done);
    image.addEventListener("error", failed);
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  });
  const canvas = el("canvas", { width: width * scale, height: height * scale });
  canvas.getContext("2d").drawImage(image, 0, 0, width * scale, height * scale);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

// The buttons of a chart. picture() gives its SVG element or null, table() its data as rows.
export function exporter(title, picture, table) {
  const name = fileName(title);
  const button = (kind, run) => el("button.export", {
    type: "button", "aria-label": `Save ${title} as ${kind}`, on: { click: run },
  }, kind);
  return el("span.exports", {},
    picture ? button("SVG", () => download(`${name}.svg`, standalone(picture()).text, "image/svg+xml")) : null,
    picture ? button("PNG", async () => download(`${name}.png`, await raster(standalone(picture())), "image/png")) : null,
    table ? button("CSV", () => download(`${name}.csv`, csv(table()), "text/csv;charset=utf-8")) : null);
}

// The buttons of a map: a dot for every point (of evenly spaced ones, if there are very many), and their places.
export function mapExporter(title, map) {
  return exporter(title, () => dots(title, map.table()), () => [["id", "x", "y", map.state.colour], ...map.table().map((row) => row.slice(0, 4))]);
}

function dots(title, rows) {
  const step = Math.ceil(rows.length / 20000);
  const [xs, ys] = [1, 2].map((at) => rows.map((row) => row[at]));
  const range = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const [[x0, x1], [y0, y1]] = [range(xs), range(ys)];
  const side = Math.max(x1 - x0, y1 - y0) || 1;
  const picture = svg("svg", { viewBox: "0 0 800 800" }, svg("title", {}, title));
  for (let k = 0; k < rows.length; k += step) {
    const [, x, y, , [r, g, b]] = rows[k];
    const dot = svg("circle", { cx: (20 + (760 * (x - x0)) / side).toFixed(1), cy: (780 - (760 * (y - y0)) / side).toFixed(1), r: 3 });
    dot.style.fill = `rgb(${r}, ${g}, ${b})`;
    picture.append(dot);
  }
  return offstage(picture);
}
