// Numbers at any places in one, two or three dimensions, as curves, meshes or dots.

import { counted, roundNumbers, shortNumber } from "../shell/numbers.js";
import { nearest, outline } from "./raster.js";

const FLATTEST = 2.4; // the widest and the highest shape of a figure
const CURVES = 1.6;

/** Where somebody looks from: `turn` about the upright axis and `tilt` from above, in degrees. */
export class Look {
  turn = 35;
  tilt = 25;

  /** Turned by so many degrees. */
  by(across, up) {
    this.turn = ((((this.turn + across + 180) % 360) + 360) % 360) - 180;
    this.tilt = Math.min(90, Math.max(-90, this.tilt + up));
  }
}

/** Let a figure of places in space be turned, by pointer and by keys. */
export function turns(figure, look, redraw) {
  let before = null;
  const turn = (across, up) => {
    look.by(across, up);
    redraw();
  };
  figure.pointing({
    scrolls: true,
    down(place) {
      before = place;
    },
    move([x, y]) {
      turn(-90 * (x - before[0]), -90 * (y - before[1]));
      before = [x, y];
    },
    arrow([right, up]) {
      turn(-10 * right, -10 * up);
      return true;
    },
  });
  figure.canvas.style.cursor = "grab";
}

/** Points in space as x and y of a picture within one of the origin, and the order in which they are
 *  painted, far ones first, with how near each is in this order, from 0 to 1. */
export function projected(points, { turn, tilt }) {
  const count = points.length / 3;
  const middle = [0, 1, 2].map((axis) => {
    const [low, high] = ends(points, 3, axis);
    return (low + high) / 2;
  });
  let reach = 0;
  for (let k = 0; k < count; k++) {
    reach = Math.max(reach, Math.hypot(...middle.map((m, axis) => points[3 * k + axis] - m)));
  }
  const [a, b] = [turn, tilt].map((degrees) => (degrees * Math.PI) / 180);
  const flat = new Float64Array(2 * count);
  const depth = new Float64Array(count);
  for (let k = 0; k < count; k++) {
    const [x, y, z] = middle.map((m, axis) => (points[3 * k + axis] - m) / (reach || 1));
    const away = Math.sin(a) * x + Math.cos(a) * y;
    flat[2 * k] = Math.cos(a) * x - Math.sin(a) * y;
    flat[2 * k + 1] = Math.cos(b) * z + Math.sin(b) * away;
    depth[k] = Math.cos(b) * away - Math.sin(b) * z;
  }
  const order = Array.from(depth.keys()).sort((i, j) => depth[j] - depth[i]);
  const near = order.map((k) => Math.min(1, Math.max(0, (1 - depth[k]) / 2)));
  return { flat, order, near };
}

/** What is shown of places: at the most three coordinates of each. */
function seen({ points, dimension }) {
  if (dimension <= 3) return points;
  return points.filter((_, k) => k % dimension < 2);
}

const MOST = 60000; // dots of a figure: more take seconds, and lie on top of each other

/** Which of very many places are drawn, at random; null for all. The figure says how many. */
function some(figure, places, count) {
  if (count <= MOST) {
    figure.partial("");
    return null;
  }
  if (!places.some) {
    // The same whenever it is painted: a step that has no divisor in common with their number.
    let step = Math.floor(0.6180339887 * count);
    while (divisor(step, count) > 1) step++;
    places.some = Uint32Array.from({ length: MOST }, (_, k) => (k * step) % count).sort();
  }
  figure.partial(`${MOST.toLocaleString("en")} of ${counted(count, "place")} are drawn.`);
  return places.some;
}

function divisor(a, b) {
  return b ? divisor(b, a % b) : a;
}

/** Paint numbers at places in a figure. `places` are those of `placesOf` in problems/own.js, and
 *  `values` one number for each of their points; of curves, `low` and `high` are a band around them,
 *  and `beside` is another curve. */
export function paintPlaces(figure, places, values, scale, { look, low, high, beside } = {}) {
  let points = seen(places);
  const dimension = places.dimension > 3 ? 2 : places.dimension;
  const dots = dimension > 1 && !(dimension === 2 && places.triangles);
  const few = dots && some(figure, places, values.length);
  if (few) {
    points = Float64Array.from({ length: dimension * MOST }, (_, k) => {
      return points[dimension * few[Math.floor(k / dimension)] + (k % dimension)];
    });
    values = Float32Array.from(few, (k) => values[k]);
  } else if (!dots) figure.partial("");
  if (dimension === 1) return paintCurve(figure, points, values, scale, { low, high, beside });
  if (dimension === 3) return paintSpace(figure, points, values, scale, look);
  const { triangles } = places;
  const box = [0, 1].map((axis) => ends(points, 2, axis));
  shape(figure, triangles ? box : box.map(widened));
  // Nodes of cells with a number of their own are not shared, so that all edges would be drawn.
  const rim = triangles && !places.from && (places.rim ??= outline(points, triangles));
  figure.show((paint) => {
    if (triangles) {
      paint.mesh({ points, triangles, values, scale });
      if (rim) paint.segments({ points: rim, colour: paint.colours.soft });
    } else {
      const radius = dotSize(paint, values.length);
      paint.scatter({ points, values, scale, radius, outline: radius > 3 && paint.colours.soft });
    }
  }, scale);
  figure.reading(([x, y]) => told(values[nearest(points, x, y)], scale));
  return undefined;
}

function paintCurve(figure, points, values, scale, { low, high, beside }) {
  const order = Array.from(points.keys()).sort((i, j) => points[i] - points[j]);
  const along = (numbers) => order.flatMap((k) => [points[k], numbers[k]]);
  const across = widened(ends(points, 1, 0));
  const up = widened([scale.low, scale.high]);
  figure.aspect = CURVES;
  figure.box = [across, up];
  figure.axes({ x: roundNumbers(...across), y: roundNumbers(...up) });
  figure.show((paint) => {
    const { faint, accent, ink } = paint.colours;
    if (low && high) {
      const back = order.toReversed().flatMap((k) => [points[k], high[k]]);
      paint.line({ points: [...along(low), ...back], closed: true, fill: faint, colour: faint });
    }
    if (beside) paint.line({ points: along(beside), colour: ink, dash: [5, 4] });
    paint.line({ points: along(values), colour: accent, width: 2 });
  });
  figure.reading(([x]) => {
    const k = order.reduce((best, other) => {
      return Math.abs(points[other] - x) < Math.abs(points[best] - x) ? other : best;
    });
    return told(values[k], scale);
  });
}

function paintSpace(figure, points, values, scale, look) {
  const { flat, order, near } = projected(points, look);
  const sorted = Float64Array.from(order.flatMap((k) => [flat[2 * k], flat[2 * k + 1]]));
  const numbers = Float32Array.from(order, (k) => values[k]);
  shape(figure, [[-1.04, 1.04], [-1.04, 1.04]]);
  figure.show((paint) => {
    const { soft } = paint.colours;
    const radius = dotSize(paint, numbers.length);
    const sizes = near.map((share) => radius * (0.6 + 0.6 * share));
    paint.scatter({ points: sorted, values: numbers, scale, radius: sizes, outline: radius > 3 && soft });
  }, scale);
  figure.reading(([x, y]) => {
    const found = nearest(sorted, x, y);
    const far = Math.hypot(sorted[2 * found] - x, sorted[2 * found + 1] - y);
    return far > 0.1 ? "" : told(numbers[found], scale);
  });
}

function told(value, scale) {
  return `${shortNumber(value)}${scale.unit ? ` ${scale.unit}` : ""}`;
}

/** The box of a figure, in a shape that is neither too flat nor too high. */
function shape(figure, box) {
  const [wide, high] = box.map(([low, top]) => top - low);
  const own = wide / high;
  const fits = own < FLATTEST && own > 1 / 1.4;
  figure.aspect = fits ? null : Math.min(FLATTEST, Math.max(1 / 1.4, own));
  figure.box = box;
}

/** The radius of dots that nearly touch. */
function dotSize({ width, height }, count) {
  return Math.min(8, Math.max(1.5, 0.4 * Math.sqrt((width * height) / count)));
}

function ends(points, dimension, axis) {
  let low = Infinity;
  let high = -Infinity;
  for (let k = axis; k < points.length; k += dimension) {
    low = Math.min(low, points[k]);
    high = Math.max(high, points[k]);
  }
  return [low, high];
}

/** A little more on both sides. */
function widened([low, high]) {
  const more = 0.04 * (high - low) || 0.5;
  return [low - more, high + more];
}
