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
  const found = [];
  for (let k = Math.ceil(low / step - 1e-6); k * step <= high + 1e-6 * step; k++) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}
