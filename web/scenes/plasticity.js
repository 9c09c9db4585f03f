// Plasticity: shape a die, see how the block of metal below it flows while it comes down.

import { array } from "../backends/npz.js";
import { Scale } from "../draw/colours.js";
import { Handles } from "../draw/handles.js";
import { gridLines, gridTriangles, nearest } from "../draw/raster.js";
import * as forging from "../problems/plasticity.js";
import { Comparison } from "../shell/comparison.js";
import { shortNumber } from "../shell/numbers.js";

const VIEW = [[-56, 6.7], [-2, 30]]; // mm
const KNOTS = 7; // that can be dragged
const PROFILE = 161; // places along the die as it is drawn
const FARTHEST = forging.descent(forging.FRAMES); // mm
const WIDEST = 1.4 * forging.SPREAD; // mm between the highest and the lowest of them
const COARSER = [1, 2, 3, 4, 5];
const FLAT = new Array(KNOTS).fill(0);
const HINT = "Drag the rings up and down, or take one with space and move it with the arrows.";

export default {
  problem: "plasticity",
  title: "Plasticity",
  about:
    "A die comes down on a block of metal and the metal gives way. Shape the die; the block follows.",

  open(room) {
    const { spec, usual } = room.model;
    const size = spec.shape[0];
    const repeated = spec.dimension === 3; // the die is given at every place, and not once
    const whole = forging.queries(size);
    const count = whole.queries.length / 3;
    const all = array(whole.queries, [count, 3]);
    const scales = scalesOf(usual?.targets, spec.units?.[2] ?? "mm");

    const state = {
      heights: FLAT, // of the knots that can be dragged
      asked: null,
      lines: whole.lines, // nodes and frames of the last answer
      quantity: "size",
      mesh: false,
      painted: {}, // what the figures show, by their parts
    };

    const compared = new Comparison(room, {
      quantity: "Displacement",
      label: "displacement of the block below the die, which can be shaped",
      box: VIEW,
      scale: () => scales[state.quantity],
      paint: draw,
      inputs: () => state.asked,
      measured: "the displacement",
      part: (values) => values.filter((_, k) => k % 4 > 1), // u_x and u_y of x, y, u_x, u_y
      method: "by finite elements",
      showSample,
    });
    const { answered } = compared;

    const player = room.player({
      frames: forging.FRAMES,
      time: (frame) => `${((forging.DURATION * frame) / forging.FRAMES).toFixed(1)} ms`,
      show: () => compared.redraw(),
    });

    const asker = room.asker({
      question({ moving, rows }) {
        const { asked } = state;
        if (!moving || count <= rows) return { inputs: asked, lines: whole.lines };
        // What is seen: one frame, of as many nodes as are answered at once.
        let some;
        for (const step of COARSER) {
          some = forging.queries(size, step, 1, player.frame);
          if (some.queries.length <= 3 * rows) break;
        }
        const queries = array(some.queries, [some.queries.length / 3, 3]);
        return { inputs: { ...asked, queries }, lines: some.lines, coarse: true };
      },
      show({ prediction }, { lines }) {
        state.lines = lines;
        compared.show(prediction.data);
      },
    });

    let before = null; // the heights when a ring was taken
    const knots = new Handles(answered, {
      places: () => Float32Array.from(rings()),
      step: 0.5,
      redraw: () => compared.redraw(),
      drag(index, [, y]) {
        before ??= { heights: state.heights, knots: forging.knots(state.heights) };
        const { heights } = before;
        const others = heights.filter((_, k) => k !== index);
        const up = y + forging.descent(player.frame) - before.knots[index + 1];
        const least = Math.max(...others) - WIDEST;
        const most = Math.min(...others) + WIDEST;
        const wanted = Math.min(most, Math.max(least, heights[index] + up));
        shape(heights.with(index, wanted), true);
      },
      drop() {
        before = null;
        asker.changed();
      },
    });

    /** Where the knots are at the frame that is shown. */
    function rings() {
      const down = forging.descent(player.frame);
      const all = forging.knots(state.heights);
      return all.slice(1, -1).flatMap((height, k) => [xOf((k + 1) / (KNOTS + 1)), height - down]);
    }

    function shape(heights, moving = false) {
      const { points, values } = forging.inputs(heights, size);
      const inputs = repeated
        ? { points: all, values: array(everywhere(values), [count, 1]) }
        : { points: array(points, [size, 1]), values: array(values, [size, 1]) };
      put(heights, { ...inputs, queries: all });
      const bold = forging.beyond(heights).some(Boolean);
      answered.caption(bold ? "Heights differ more than in any die of the training." : HINT);
      asker.changed({ moving });
    }

    /** The die at every place of the block and its times. */
    function everywhere(values) {
      const each = count / size;
      return Float32Array.from({ length: count }, (_, k) => values[Math.floor(k / each)]);
    }

    function put(heights, asked) {
      compared.forget();
      Object.assign(state, { heights, asked });
    }

    function draw(figure, values, scale, part) {
      const { lines } = part === "answer" ? state : whole;
      const shown = frameOf(part === "error" ? compared.truth.values : values, lines);
      if (part === "error") shown.moved = errorsOf(values, lines);
      const [along, across] = [lines[0].length, lines[1].length];
      const { points } = shown;
      const painted = Float32Array.from(shown.moved, QUANTITIES[state.quantity].of);
      const block = { points, triangles: gridTriangles(along, across), values: painted };
      state.painted[part] = block;
      const mesh = state.mesh && gridLines(points, along, across);
      const die = dieLine();
      const above = [...die, VIEW[0][0], VIEW[1][1] + 1, VIEW[0][1], VIEW[1][1] + 1];
      figure.show((paint) => {
        const { faint, panel } = paint.colours;
        paint.line({ points: START, closed: true, width: 1, colour: faint, dash: [4, 4] });
        paint.line({ points: GROUND, width: 1, colour: faint });
        paint.mesh({ ...block, scale });
        if (mesh) paint.segments({ points: mesh, colour: "#ffffff", width: 0.4 });
        paint.line({ points: rim(points, along, across), closed: true, width: 1 });
        paint.line({ points: above, closed: true, fill: panel, colour: faint });
        paint.line({ points: die });
        if (part === "answer") paint.handles({ points: rings(), active: knots.active });
      }, scale);
      figure.reading(([x, y]) => {
        const node = nearest(points, x, y);
        const far = Math.hypot(points[2 * node] - x, points[2 * node + 1] - y);
        const cell = forging.LENGTH / (along - 1);
        return far > 2 * cell ? "" : `${shortNumber(painted[node])} ${scale.unit}`;
      });
    }

    /** Places and displacements of the nodes at the frame that is shown, or the nearest there is. */
    function frameOf(values, [along, across, times]) {
      const at = closest(times, player.frame);
      const points = [];
      const moved = [];
      for (let node = 0; node < along.length * across.length; node++) {
        const first = 4 * (node * times.length + at);
        points.push(values[first], values[first + 1]);
        moved.push([values[first + 2], values[first + 3]]);
      }
      return { points, moved };
    }

    /** Errors of the two displacements, of values that are no more than these. */
    function errorsOf(values, [along, across, times]) {
      const at = closest(times, player.frame);
      return Array.from({ length: along.length * across.length }, (_, node) => {
        const first = 2 * (node * times.length + at);
        return [values[first], values[first + 1]];
      });
    }

    /** The lower side of the die at the frame that is shown; beyond its ends it goes on straight. */
    function dieLine() {
      const down = forging.descent(player.frame);
      const heights = forging.profile(state.heights, PROFILE);
      const line = Array.from(heights, (y, k) => [xOf(k / (PROFILE - 1)), y - down]);
      const on = ([x0, y0], [x1, y1], x) => [x, y1 + ((y1 - y0) / (x1 - x0)) * (x - x1)];
      const [right, left] = [VIEW[0][1], VIEW[0][0]];
      return [on(line[1], line[0], right), ...line, on(line.at(-2), line.at(-1), left)].flat();
    }

    // Controls.
    const die = room.controls("Die");
    die.button({ label: "Random draw", main: true, press: () => shape(forging.draw()) });
    die.button({ label: "Flat", press: () => shape(FLAT) });

    const shown = room.controls("Displacement");
    shown.choice({
      label: "Displacement",
      options: Object.entries(QUANTITIES).map(([name, { text }]) => [name, text]),
      value: state.quantity,
      change(name) {
        state.quantity = name;
        compared.redraw();
      },
    });
    shown.toggle({
      label: "Lines of the mesh",
      change(on) {
        state.mesh = on;
        compared.redraw();
      },
    });

    compared.controls();

    function showSample({ points, values, queries, targets }) {
      if (queries && queries.shape[0] !== count) {
        const found = queries.shape[0];
        throw new Error(`This sample has answers at ${found} places; the page shows ${count}.`);
      }
      const each = repeated ? count / size : 1;
      const die = values.data.filter((_, k) => k % each === 0);
      put(forging.heightsOf(die), { points, values, queries: queries ?? all });
      answered.caption("A die that the model was not trained on.");
      asker.changed();
      return targets.data;
    }

    player.frame = forging.FRAMES - 1;
    shape(forging.draw());
    return { state, compared, player };
  },
};

/** What is shown of a displacement, and of the absolute errors of its two parts. */
const QUANTITIES = {
  size: { text: "Length", of: ([x, y]) => Math.hypot(x, y) },
  sideways: { text: "Sideways", of: ([x]) => x },
  upwards: { text: "Upwards", of: ([, y]) => y },
};

/** A scale for each, the same for all frames: as far as the die goes, and farther where a model was
 *  trained on more. */
function scalesOf(targets, unit) {
  const [, , x, y] = targets?.length === 4 ? targets : [[0], [0], [0], [0]];
  const reach = (range, least) => Math.max(least, ...range.map(Math.abs));
  const far = Math.max(reach(x, FARTHEST), reach(y, FARTHEST));
  return {
    size: new Scale("sequential", 0, far, unit),
    sideways: Scale.around(0, reach(x, FARTHEST / 2), unit),
    upwards: Scale.around(0, reach(y, FARTHEST), unit),
  };
}

const [LEFT, BOTTOM] = [forging.RIGHT - forging.LENGTH, forging.TOP - forging.HEIGHT];
const START = [forging.RIGHT, forging.TOP, LEFT, forging.TOP, LEFT, BOTTOM, forging.RIGHT, BOTTOM];
const GROUND = [VIEW[0][0], BOTTOM, VIEW[0][1], BOTTOM];

/** x in mm at a part of the way along the block, which is counted from the right. */
function xOf(part) {
  return forging.RIGHT - forging.LENGTH * part;
}

/** The index of the number that is nearest to another. */
function closest(numbers, wanted) {
  const apart = numbers.map((number) => Math.abs(number - wanted));
  return apart.indexOf(Math.min(...apart));
}

/** The outline of a block of nodes. */
function rim(points, n, m) {
  const nodes = [];
  for (let i = 0; i < n; i++) nodes.push(i * m);
  for (let j = 1; j < m; j++) nodes.push((n - 1) * m + j);
  for (let i = n - 2; i >= 0; i--) nodes.push(i * m + m - 1);
  for (let j = m - 2; j > 0; j--) nodes.push(j);
  return nodes.flatMap((node) => [points[2 * node], points[2 * node + 1]]);
}
