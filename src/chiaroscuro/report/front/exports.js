// Charts and selections as files: SVG, PNG and CSV, made in the page; nothing is sent anywhere.

import { el } from "./dom.js";

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
