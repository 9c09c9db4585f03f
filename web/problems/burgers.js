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
