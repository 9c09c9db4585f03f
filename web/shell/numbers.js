/** A number in few characters: 0.0123, 1.5, 340, 2.1e-7. */
export function shortNumber(value) {
  if (!Number.isFinite(value)) return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  return String(Number(value.toPrecision(3)));
}

/** Milliseconds as people read them; no line is broken before the unit. */
export function duration(milliseconds) {
  if (milliseconds >= 1000) return `${(milliseconds / 1000).toFixed(1)}\u00a0s`;
  return `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)}\u00a0ms`;
}

/** A number with so many digits behind the point; what rounds to nothing has no sign. */
export function fixed(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/** How many there are of something: 1 sensor, 2,040 sensors. */
export function counted(count, name) {
  return `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;
}

/** A share in per cent. */
export function percent(share) {
  const value = 100 * share;
  return `${value < 10 ? value.toPrecision(2) : Math.round(value)} %`;
}

/** The distance of two fields relative to the second, in the norm of the training (L2). */
export function relativeError(answer, truth) {
  let gap = 0;
  let size = 0;
  for (let k = 0; k < truth.length; k++) {
    gap += (answer[k] - truth[k]) ** 2;
    size += truth[k] ** 2;
  }
  return Math.sqrt(gap / size);
}

/** The absolute difference of two fields. */
export function absoluteError(answer, truth) {
  return Float32Array.from(truth, (value, k) => Math.abs(answer[k] - value));
}

/** Round numbers in a range, about `wanted` of them: to mark an axis with. */
export function roundNumbers(low, high, wanted = 4) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((times) => times * power >= rough * 0.999);
  return multiples(step, low, high);
}

function multiples(step, low, high) {
  const found = [];
  for (let k = Math.ceil(low / step - 1e-6); k * step <= high + 1e-6 * step; k++) {
    found.push(Number((k * step).toPrecision(12)) || 0);
  }
  return found;
}

const LARGE = 1e5; // where all numbers of a bar share a power of ten
const SMALL = 1e-3; // likewise, below
const FINE = 1e-4; // a range that is so small beside its numbers is told from one of them

/** Three to five round numbers in a range, to mark a colour bar with; three where they have to be
 *  `few`. `texts` are short: what all have in common, a power of ten or a large offset, is in
 *  `common` and stands before the unit. */
export function ticksOf(low, high, { few = false } = {}) {
  const all = Math.max(Math.abs(low), Math.abs(high));
  if (high - low < FINE * all && high > low) {
    const size = 10 ** Math.ceil(Math.log10(high - low));
    const base = Math.floor(low / size) * size;
    const near = ticksOf(low - base, high - base, { few });
    const values = near.values.map((value) => value + base);
    return { values, texts: near.texts, common: `${near.common} + ${signed(base)}`.trim() };
  }
  const power = 10 ** Math.floor(Math.log10((high - low) / 10));
  const steps = [1, 2, 2.5, 5, 10, 20, 25, 50].map((times) => times * power);
  const choices = steps
    .map((step) => multiples(step, low, high))
    .filter((found) => found.length >= 3 && found.length <= 5);
  const values = few ? choices.at(-1) : choices[0];
  const shared = all >= LARGE || all < SMALL ? Math.floor(Math.log10(all) + 1e-9) : 0;
  const texts = values.map((value) => signed(Number((value / 10 ** shared).toPrecision(10))));
  return { values, texts, common: shared ? `× 10${raised(shared)}` : "" };
}

function signed(value) {
  return String(value).replace("-", "−");
}

function raised(power) {
  return String(power).replace(/./g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)]));
}
