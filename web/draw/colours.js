// Colour scales, computed in OKLab. All of them change evenly in lightness, so that they are read
// the same by people who see fewer hues, and in print.

const SIZE = 256;

/** Lightness, chroma and hue (in degrees) along each scale, at even distances. */
const STOPS = {
  // Dark violet over blue and green to yellow.
  sequential: [
    [0.22, 0.09, 305],
    [0.36, 0.115, 280],
    [0.5, 0.1, 235],
    [0.64, 0.115, 180],
    [0.78, 0.15, 140],
    [0.92, 0.17, 105],
  ],
  // Blue for what is negative, nearly white at zero, orange-red for what is positive.
  diverging: [
    [0.3, 0.12, 262],
    [0.52, 0.14, 252],
    [0.76, 0.09, 240],
    [0.965, 0.004, 100],
    [0.78, 0.11, 62],
    [0.57, 0.16, 42],
    [0.35, 0.13, 30],
  ],
  // From nearly black to a warm white: what it shows starts at nothing.
  error: [
    [0.16, 0.02, 290],
    [0.34, 0.12, 310],
    [0.52, 0.18, 350],
    [0.7, 0.17, 35],
    [0.86, 0.13, 75],
    [0.97, 0.05, 100],
  ],
  // Two materials or one amount: from a pale to a deep blue-grey.
  amount: [
    [0.95, 0.012, 240],
    [0.72, 0.06, 240],
    [0.46, 0.09, 250],
    [0.27, 0.07, 262],
  ],
};

const tables = {};

/** The 256 colours of a scale, as red, green and blue one after the other. */
export function table(kind) {
  if (!(kind in STOPS)) throw new Error(`no colour scale ${kind}; known: ${Object.keys(STOPS)}`);
  return (tables[kind] ??= computed(STOPS[kind]));
}

function computed(stops) {
  const labs = stops.map(([lightness, chroma, hue]) => {
    const angle = (hue * Math.PI) / 180;
    return [lightness, chroma * Math.cos(angle), chroma * Math.sin(angle)];
  });
  const found = new Uint8ClampedArray(3 * SIZE);
  for (let k = 0; k < SIZE; k++) {
    const place = (k / (SIZE - 1)) * (labs.length - 1);
    const left = Math.min(Math.floor(place), labs.length - 2);
    const share = place - left;
    const lab = labs[left].map((low, axis) => low + share * (labs[left + 1][axis] - low));
    found.set(toRed(lab), 3 * k);
  }
  return found;
}

/** OKLab to sRGB (B. Ottosson, 2020). */
function toRed([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((x) => 255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055));
}

/** A colour scale over a fixed range of values. It is made once and shared by all figures that are
 *  compared: truth and answer have one, and the error has one with the same span.
 *
 *  `kind` is "sequential", "diverging" (then `low` is `-high`), "error" or "amount". */
export class Scale {
  constructor(kind, low, high, unit = "") {
    if (!(high > low)) [low, high] = [low, low + 1];
    Object.assign(this, { kind, low, high, unit, table: table(kind) });
  }

  /** A diverging scale about zero that reaches the larger of two ends. */
  static around(low, high, unit = "") {
    const reach = Math.max(Math.abs(low), Math.abs(high));
    return new Scale("diverging", -reach, reach, unit);
  }

  /** The scale of absolute errors of what this scale shows: as long, from zero. `times` magnifies:
   *  an error is then told from nothing where it is a hundredth of the field. */
  forErrors(times = 1) {
    return new Scale("error", 0, (this.high - this.low) / times, this.unit);
  }

  /** Where in the table a value is: what is beyond the range has the colour of its end. */
  index(value) {
    const place = ((value - this.low) / (this.high - this.low)) * (SIZE - 1) + 0.5;
    return place <= 0 ? 0 : place >= SIZE - 1 ? SIZE - 1 : Math.floor(place);
  }

  /** A colour as CSS takes it. */
  css(value) {
    const at = 3 * this.index(value);
    return `rgb(${this.table[at]} ${this.table[at + 1]} ${this.table[at + 2]})`;
  }
}

/** The smallest and the largest finite number of some arrays together. */
export function rangeOf(...arrays) {
  let low = Infinity;
  let high = -Infinity;
  for (const array of arrays) {
    for (const value of array) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : [0, 1];
}
