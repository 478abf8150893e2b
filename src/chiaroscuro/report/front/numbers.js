// Numbers for people: three figures, commas between thousands, units; and the ticks of an axis.

let NAMES = {}; // of every measure its label and unit, as the document defines them

export function learn(measures) {
  NAMES = Object.fromEntries(Object.entries(measures ?? {}).map(([name, one]) => [name, [one.label, one.unit ?? ""]]));
}

// What a table has of its own under a key that may be any text, such as "constructor".
export function own(table, key) {
  return Object.hasOwn(table, key) ? table[key] : undefined;
}

export function measureName(name) {
  const projected = name.startsWith("z_");
  const known = own(NAMES, projected ? name.slice(2) : name);
  const text = known ? known[0] : name.replaceAll("_", " ");
  return projected ? `${text} of z` : text;
}

// The name of a measure of the samples shown, which may be fewer than those diagnosed.
export function shownName(name) {
  return name.startsWith("shown_") ? measureName(name) : `${measureName(name)}, samples shown`;
}

export function unit(name) {
  const known = own(NAMES, name.startsWith("z_") ? name.slice(2) : name);
  if (known) return known[1];
  return /accuracy|^knn|^linear|zero_shot|top_|recall/.test(name) ? "%" : "";
}

export function format(value, figures = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) {
    return value.toLocaleString("en").replace("-", "\u2212");
  }
  if (size >= 1e5 || size < 1e-3) return value.toExponential(Math.max(0, figures - 2)).replace("e+", "e");
  const digits = Math.max(0, figures - 1 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(6, digits)).replace("-", "\u2212");
}

// [number, unit]: "12.6" and "%"
export function parts(name, value) {
  const kind = unit(name);
  return kind === "%" && value !== null && value !== undefined ? [format(100 * value), "%"] : [format(value), kind];
}

// The same without needless zeros, for an axis: 0.5, not 0.500.
export function tickText(value) {
  const text = format(value);
  const short = text.includes("e") ? text.replace(/\.0+e/, "e") : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return short.replace("e-", "e\u2212");
}

export function measure(name, value) {
  const kind = unit(name);
  if (value === null || value === undefined) return "–";
  if (kind === "%") return `${format(100 * value)}\u202f%`;
  return kind ? `${format(value)} ${kind}` : format(value);
}

export function ticks(low, high, wanted = 5) {
  const span = high - low || 1;
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => span / k <= wanted) ?? 10 * power;
  const out = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) {
    out.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  }
  return out;
}

export function logTicks(low, high) {
  const out = [];
  for (let e = Math.ceil(Math.log10(low) - 1e-9); e <= Math.log10(high) + 1e-9; e += 1) out.push(10 ** e);
  const every = Math.ceil(out.length / 6);
  return out.filter((_, at) => at % every === 0);
}

export function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low > high ? [0, 1] : [low, high];
}
