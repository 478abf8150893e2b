// Colours that people with any colour vision can tell apart (after Okabe and Ito), and shapes beyond.

const LIGHT = [
  "#0072b2", "#d98e00", "#008f68", "#c2659a", "#d55e00",
  "#3f9fd8", "#882255", "#808020", "#6a4ca3", "#80654a",
];
const DARK = [
  "#4aa3df", "#e69f00", "#1fbf93", "#e08fc0", "#f0753a",
  "#8fd6ff", "#cf6f98", "#c2c25a", "#ad90e6", "#bb9d7d",
];
// dark to light, also in grey: the stops of viridis
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

export const SHAPES = 4; // circle, square, triangle, diamond

const stored = { theme: null };

export function theme() {
  if (stored.theme) return stored.theme;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export function setTheme(name) {
  stored.theme = name;
  document.documentElement.dataset.theme = name;
  dispatchEvent(new Event("theme"));
}

export function category(index) {
  const colours = theme() === "dark" ? DARK : LIGHT;
  return index < 0 ? (theme() === "dark" ? "#8a857b" : "#8d887d") : colours[index % colours.length];
}

export function shape(index) {
  return index < 0 ? 0 : Math.floor(index / LIGHT.length) % SHAPES;
}

export function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

export function scale(share) {
  const at = Math.min(0.9999, Math.max(0, share)) * (SCALE.length - 1);
  const low = Math.floor(at);
  return SCALE[low].map((v, c) => Math.round(v + (SCALE[low + 1][c] - v) * (at - low)));
}

export function gradient() {
  return `linear-gradient(90deg, ${SCALE.map((c) => `rgb(${c.join(" ")})`).join(", ")})`;
}
