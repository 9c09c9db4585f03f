/**
 * The circle of length 1 that Burgers' equation lives on: points, bumps and how they are dragged.
 */

/** Points (n, 1): i / n. */
export function circlePoints(n) {
  return Float32Array.from({ length: n }, (_, i) => i / n);
}

/** Spectra of the training: σ and γ of u = Σ s_k (ξ_k cos 2πkx + η_k sin 2πkx), with
 *  s_k = √2 σ ((2πk)² + τ²)^(-γ/2). */
const SPECTRA = { file: [625, 4], paper: [25, 2] };
const TAU = 5;

/** A draw from the distribution of the training, at n points. `normal` draws numbers. */
export function randomCurve(n, normal, convention = "file") {
  const [sigma, gamma] = SPECTRA[convention] ?? SPECTRA.file;
  const curve = new Float32Array(n);
  for (let k = 1; k <= Math.min(512, Math.floor((n - 1) / 2)); k++) {
    const frequency = 2 * Math.PI * k;
    const size = Math.SQRT2 * sigma * (frequency ** 2 + TAU ** 2) ** (-gamma / 2);
    const [xi, eta] = [size * normal(), size * normal()];
    for (let i = 0; i < n; i++) {
      const angle = (frequency * i) / n;
      curve[i] += xi * Math.cos(angle) + eta * Math.sin(angle);
    }
  }
  return curve;
}

/** The largest of 1000 waves of the training: their size, their slope, and how sharply they bend
 *  (differences of neighbours and of these, at 256 points). Found with the waves that
 *  `ipot.problems.burgers` draws, indices 0 to 999 of the stream "burgers/train", seed 0. */
const LARGEST = { file: [0.8857, 6.083, 46.58], paper: [2.655, 30.19, 1414] };
const MEASURED = 256;

/** What a wave is more than any of the training: "Higher", "Steeper" or "Bent more sharply"; else
 *  null. */
export function beyond(curve, convention = "file") {
  const measured = measures(curve);
  const largest = LARGEST[convention] ?? LARGEST.file;
  const k = measured.findIndex((value, i) => value > largest[i]);
  return ["Higher", "Steeper", "Bent more sharply"][k] ?? null;
}

/** Size, slope and bend of a wave; between more than 256 points waves are not looked at. */
export function measures(curve) {
  const n = curve.length % MEASURED ? curve.length : MEASURED;
  const values = thinCurve(curve, n);
  const found = [0, 0, 0];
  values.forEach((value, i) => {
    const [left, right] = [values[(i + n - 1) % n], values[(i + 1) % n]];
    const here = [value, n * (right - value), n * n * (left - 2 * value + right)];
    here.forEach((size, k) => (found[k] = Math.max(found[k], Math.abs(size))));
  });
  return found;
}

/** The distance from a to b on the circle, in (-1/2, 1/2]. */
export function around(a, b) {
  const d = b - a - Math.floor(b - a);
  return d > 0.5 ? d - 1 : d;
}

/**
 * Pull a curve in place so that it passes through `height` at x, with a smooth bump of a width.
 * The mean is kept: Burgers' equation keeps it too, and the model has only seen a mean of zero.
 */
export function pull(curve, x, height, width) {
  const n = curve.length;
  const bump = new Float64Array(n);
  let mean = 0;
  for (let i = 0; i < n; i++) {
    for (let image = -2; image <= 2; image++) {
      const distance = (around(x, i / n) + image) / width;
      bump[i] += Math.exp((-distance * distance) / 2);
    }
    mean += bump[i] / n;
  }
  const top = bump.reduce((largest, b) => Math.max(largest, b), 0) - mean;
  const by = (height - sampleCurve(curve, x)) / top;
  for (let i = 0; i < n; i++) curve[i] += by * (bump[i] - mean);
}

/** The curve at any x, on the straight line between its two nearest points. */
export function sampleCurve(curve, x) {
  const n = curve.length;
  const place = (x - Math.floor(x)) * n;
  const left = Math.floor(place) % n;
  const share = place - Math.floor(place);
  return (1 - share) * curve[left] + share * curve[(left + 1) % n];
}

/** Every k-th point of a curve, so that `count` are left; count must divide its length. */
export function thinCurve(curve, count) {
  const step = curve.length / count;
  if (!Number.isInteger(step)) throw new Error(`${count} points do not divide ${curve.length}`);
  return Float32Array.from({ length: count }, (_, i) => curve[i * step]);
}
