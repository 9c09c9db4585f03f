/**
 * The circle of length 1 that Burgers' equation lives on: points, bumps and how they are dragged.
 */

/** Points (n, 1): i / n. */
export function circlePoints(n) {
  return Float32Array.from({ length: n }, (_, i) => i / n);
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
