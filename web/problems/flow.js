/**
 * A small solver of the vorticity equation on the periodic square, for the past of what is painted:
 * a model that looks back needs frames that follow from one another.
 *
 * It is `ipot/solvers/navier_stokes.py` in float64 for one flow: Fourier pseudo-spectral with the
 * 2/3 rule, and classical Runge-Kutta after an integrating factor. The page solves on a coarse grid,
 * which shows what such a viscosity leaves.
 */

const STEP_TIMES_POINTS = 1.28;
const COURANT = 0.7;
const FORCING = 0.1;
const FINEST = 32;

/** Frames (count of them, one unit of time apart) that follow a field on n x n points. */
export function following(field, n, viscosity, count) {
  const points = 2 ** Math.floor(Math.log2(Math.min(n, FINEST)));
  const flow = new Flow(resampled(field, n, points), points, viscosity);
  return Array.from({ length: count }, () => resampled(flow.advance(1), points, n));
}

/** A periodic field on n x n points as its waves have it on m x m points. */
export function resampled(field, n, m) {
  if (n === m) return Float32Array.from(field);
  const table = kernel(n, m);
  const half = new Float64Array(m * n); // along the first axis alone
  for (let a = 0; a < m; a++) {
    for (let i = 0; i < n; i++) {
      const share = table[a * n + i];
      for (let j = 0; j < n; j++) half[a * n + j] += share * field[i * n + j];
    }
  }
  const found = new Float32Array(m * m);
  for (let a = 0; a < m; a++) {
    for (let b = 0; b < m; b++) {
      let sum = 0;
      for (let j = 0; j < n; j++) sum += table[b * n + j] * half[a * n + j];
      found[a * m + b] = sum;
    }
  }
  return found;
}

/** What a value at j / n counts at a / m, as far as both grids carry the waves. */
function kernel(n, m) {
  const table = new Float64Array(m * n);
  for (let a = 0; a < m; a++) {
    for (let j = 0; j < n; j++) {
      let sum = 1;
      for (let k = 1; 2 * k < Math.min(n, m); k++) {
        sum += 2 * Math.cos(2 * Math.PI * k * (a / m - j / n));
      }
      table[a * n + j] = sum / n;
    }
  }
  return table;
}

/** The spectrum of a flow, and what it takes to advance it. */
class Flow {
  constructor(field, n, viscosity) {
    const size = n * n;
    Object.assign(this, { n, viscosity, transform: new Transform(n) });
    this.square = new Float64Array(size);
    this.kx = new Float64Array(size); // 2π times the wave number where it is resolved, else 0
    this.ky = new Float64Array(size);
    this.keep = new Uint8Array(size);
    const wave = (i) => (i <= n / 2 ? i : i - n);
    for (let i = 0, at = 0; i < n; i++) {
      for (let j = 0; j < n; j++, at++) {
        const [k, l] = [wave(i), wave(j)];
        this.square[at] = 4 * Math.PI ** 2 * (k * k + l * l);
        const resolved = 3 * Math.abs(k) < n && 3 * Math.abs(l) < n && at > 0;
        if (!resolved) continue;
        this.keep[at] = 1;
        this.kx[at] = 2 * Math.PI * k;
        this.ky[at] = 2 * Math.PI * l;
      }
    }
    this.forcing = this.#spectrum((i, j) => {
      const angle = (2 * Math.PI * (i + j)) / n;
      return FORCING * (Math.sin(angle) + Math.cos(angle));
    });
    this.state = this.#spectrum((i, j) => field[i * n + j]);
  }

  /** Go on for a while, and give the field. */
  advance(duration) {
    const { n, state } = this;
    const rate = Math.max(n / STEP_TIMES_POINTS, (this.#speed() * n) / COURANT);
    const steps = Math.ceil(duration * rate - 1e-9);
    for (let step = 0; step < steps; step++) this.#step(duration / steps);
    const field = { re: state.re.slice(), im: state.im.slice() };
    this.transform.run(field, true);
    return field.re;
  }

  #spectrum(value) {
    const { n } = this;
    const re = Float64Array.from({ length: n * n }, (_, at) => value(Math.floor(at / n), at % n));
    const found = { re, im: new Float64Array(n * n) };
    this.transform.run(found);
    return found;
  }

  /** Two real fields with the spectra i g w and i h w, as the parts of one complex field. */
  #pair(w, g, h) {
    const size = w.re.length;
    const found = { re: new Float64Array(size), im: new Float64Array(size) };
    for (let at = 0; at < size; at++) {
      // i g w + i (i h w) = i g w - h w
      found.re[at] = -g(at) * w.im[at] - h(at) * w.re[at];
      found.im[at] = g(at) * w.re[at] - h(at) * w.im[at];
    }
    this.transform.run(found, true);
    return found;
  }

  /** u and v: the flow of ψ, whose curl the vorticity is. */
  #velocity(w) {
    const { kx, ky, square, keep } = this;
    return this.#pair(
      w,
      (at) => (keep[at] ? ky[at] / square[at] : 0),
      (at) => (keep[at] ? -kx[at] / square[at] : 0),
    );
  }

  #speed() {
    const { re, im } = this.#velocity(this.state);
    let most = 0;
    for (let at = 0; at < re.length; at++) most = Math.max(most, Math.abs(re[at]) + Math.abs(im[at]));
    return most;
  }

  /** f - u·grad w. */
  #rate(w) {
    const { kx, ky, keep, forcing } = this;
    const flow = this.#velocity(w);
    const slope = this.#pair(
      w,
      (at) => kx[at],
      (at) => ky[at],
    );
    const found = { re: new Float64Array(kx.length), im: new Float64Array(kx.length) };
    for (let at = 0; at < kx.length; at++) {
      found.re[at] = flow.re[at] * slope.re[at] + flow.im[at] * slope.im[at];
    }
    this.transform.run(found);
    for (let at = 0; at < kx.length; at++) {
      found.re[at] = forcing.re[at] - keep[at] * found.re[at];
      found.im[at] = forcing.im[at] - keep[at] * found.im[at];
    }
    return found;
  }

  #step(dt) {
    const { state: w, square, viscosity } = this;
    const half = square.map((k) => Math.exp((-viscosity * k * dt) / 2));
    const both = (make) => ({ re: make("re"), im: make("im") });
    const a = this.#rate(w);
    const b = this.#rate(both((p) => half.map((e, at) => e * (w[p][at] + (dt / 2) * a[p][at]))));
    const c = this.#rate(both((p) => half.map((e, at) => e * w[p][at] + (dt / 2) * b[p][at])));
    const d = this.#rate(both((p) => half.map((e, at) => e * (e * w[p][at] + dt * c[p][at]))));
    for (const p of ["re", "im"]) {
      for (let at = 0; at < half.length; at++) {
        const e = half[at];
        const slope = e * e * a[p][at] + 2 * e * (b[p][at] + c[p][at]) + d[p][at];
        w[p][at] = e * e * w[p][at] + (dt / 6) * slope;
      }
    }
  }
}

/** Fourier's transform of fields of n x n complex numbers, in place; n is a power of two. */
class Transform {
  constructor(n) {
    this.n = n;
    const bits = Math.log2(n);
    this.order = Array.from({ length: n }, (_, i) => {
      let turned = 0;
      for (let bit = 0; bit < bits; bit++) if (i & (1 << bit)) turned |= 1 << (bits - 1 - bit);
      return turned;
    });
    this.cos = Float64Array.from({ length: n / 2 }, (_, k) => Math.cos((2 * Math.PI * k) / n));
    this.sin = Float64Array.from({ length: n / 2 }, (_, k) => Math.sin((2 * Math.PI * k) / n));
    this.line = { re: new Float64Array(n), im: new Float64Array(n) };
  }

  /** Forward, or back with the division by n². */
  run({ re, im }, back = false) {
    const { n } = this;
    for (let k = 0; k < n; k++) this.#line(re, im, k * n, 1, back);
    for (let k = 0; k < n; k++) this.#line(re, im, k, n, back);
    if (!back) return;
    for (let at = 0; at < n * n; at++) {
      re[at] /= n * n;
      im[at] /= n * n;
    }
  }

  /** One line of a field, from `start` in strides: radix two. */
  #line(re, im, start, stride, back) {
    const { n, order, cos, sin, line } = this;
    for (let i = 0; i < n; i++) {
      line.re[i] = re[start + stride * order[i]];
      line.im[i] = im[start + stride * order[i]];
    }
    const sign = back ? 1 : -1;
    for (let size = 2; size <= n; size *= 2) {
      const half = size / 2;
      const step = n / size;
      for (let first = 0; first < n; first += size) {
        for (let k = 0; k < half; k++) {
          const [c, s] = [cos[k * step], sign * sin[k * step]];
          const [left, right] = [first + k, first + k + half];
          const x = c * line.re[right] - s * line.im[right];
          const y = c * line.im[right] + s * line.re[right];
          line.re[right] = line.re[left] - x;
          line.im[right] = line.im[left] - y;
          line.re[left] += x;
          line.im[left] += y;
        }
      }
    }
    for (let i = 0; i < n; i++) {
      re[start + stride * i] = line.re[i];
      im[start + stride * i] = line.im[i];
    }
  }
}
