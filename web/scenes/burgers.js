// Burgers' equation: draw a wave on a circle, see how it has steepened after one unit of time.

import { array } from "../backends/npz.js";
import { rangeOf } from "../draw/colours.js";
import { beyond, circlePoints, pull, randomCurve, sampleCurve, thinCurve } from "../problems/burgers.js";
import { normalNumbers, seeded } from "../problems/darcy.js";
import { difference } from "../problems/rollout.js";
import {
  absoluteError,
  counted,
  percent,
  relativeError,
  roundNumbers,
  shortNumber,
} from "../shell/numbers.js";
import { truthControls } from "../shell/truth.js";

const FEWEST = 8; // sensors
const DOTS = 64; // sensors that are shown one by one, at the most
const ACROSS = roundNumbers(0, 1, 4);

export default {
  problem: "burgers",
  title: "Burgers",
  about:
    "A wave on a circle that runs faster where it is higher, until it stands in steep fronts. Draw it; its end follows.",

  open(room) {
    const { spec, ranges, settings } = room.model;
    const nodes = spec.shape[0];
    const [low, high] = ranges?.values?.[0] ?? [-1, 1];
    const reach = 1.2 * Math.max(Math.abs(low), Math.abs(high));
    const box = [[0, 1], [-reach, reach]];

    const chart = (options) => room.figure({ box, aspect: 1.35, large: true, ...options });
    const start = chart({ title: "Start", label: "the wave at the start, to draw on" });
    const end = chart({ title: "End", label: "the wave after one unit of time" });
    const wrong = chart({ title: "Error of the model", wide: true, aspect: 2.95 });
    for (const figure of [start, end]) figure.axes({ x: ACROSS, y: roundNumbers(-reach, reach) });

    let turn = 0; // of what is shown: a solution that comes too late belongs to something else
    const state = {
      curve: randomCurve(nodes, normalNumbers(seeded(3)), settings?.convention),
      sensors: nodes,
      width: 0.08,
      answer: null, // values at all nodes
      truth: null, // values, and where they are from
      times: 1, // how much errors are magnified
    };

    const asker = room.asker({
      question: () => ({ inputs: inputs() }),
      show({ prediction }) {
        state.answer = prediction.data;
        draw();
      },
    });

    function inputs() {
      const count = state.sensors;
      return {
        points: array(circlePoints(count), [count, 1]),
        values: array(thinCurve(state.curve, count), [count, 1]),
        queries: array(circlePoints(state.curve.length), [state.curve.length, 1]),
      };
    }

    function changed(moving = false) {
      turn++;
      state.truth = null;
      drawStart();
      draw();
      asker.changed({ moving });
    }

    let pointer = null;

    function drawStart() {
      const { curve, sensors } = state;
      start.show((paint) => {
        paint.line({ points: [0, 0, 1, 0], colour: paint.colours.soft, width: 1 });
        paint.line({ points: around(curve), width: 2.5 });
        if (sensors <= DOTS) {
          const values = thinCurve(curve, sensors);
          const points = [...values].flatMap((value, k) => [k / sensors, value]);
          paint.scatter({ points, colour: paint.colours.warm, radius: 3, outline: true });
        }
        if (pointer) {
          const ends = [pointer[0] - state.width, pointer[0] + state.width];
          const points = [ends[0], pointer[1], ends[1], pointer[1]];
          paint.line({ points, colour: paint.colours.accent, width: 2 });
        }
      });
      start.reading(([x]) => `u(${x.toFixed(2)}) = ${shortNumber(sampleCurve(curve, x))}`);
      const more = beyond(curve, settings?.convention);
      const unusual = more ? `. ${more} than any wave in training.` : "";
      start.caption(`${counted(sensors, "sensor")}${unusual}`);
    }

    function draw() {
      const { curve, answer, truth, times } = state;
      wrong.element.hidden = !truth;
      if (!answer) return;
      end.show((paint) => {
        const { soft, accent, ink } = paint.colours;
        paint.line({ points: [0, 0, 1, 0], colour: soft, width: 1 });
        paint.line({ points: around(curve), colour: soft, width: 1.5, dash: [1.5, 3] });
        paint.line({ points: around(answer), colour: accent, width: 2.5 });
        if (truth) paint.line({ points: around(truth.values), colour: ink, width: 1.75, dash: [6, 4] });
      });
      end.keys([
        ["Model", "accent"],
        ...(truth ? [["Solver", "ink", "dashed"]] : []),
        ["Start", "soft", "dotted"],
      ]);
      end.reading(([x]) => `u(${x.toFixed(2)}) = ${shortNumber(sampleCurve(answer, x))}`);
      end.caption(truth ? `solver: ${truth.from}` : "");
      if (!truth || truth.values.length !== answer.length) {
        room.tell({});
        return;
      }
      const gap = difference(answer, truth.values);
      wrong.box = [box[0], [-reach / times, reach / times]];
      wrong.axes({ x: ACROSS, y: roundNumbers(-reach / times, reach / times) });
      wrong.show((paint) => {
        paint.line({ points: [0, 0, 1, 0], colour: paint.colours.soft, width: 1 });
        paint.line({ points: around(gap), colour: paint.colours.warm, width: 2.5 });
      });
      wrong.reading(([x]) => shortNumber(sampleCurve(gap, x)));
      const scale = times === 1 ? "same scale as the wave" : `magnified ${times} times`;
      wrong.caption(`model less solver, ${scale}`);
      room.tell({
        "relative error": percent(relativeError(answer, truth.values)),
        "largest error": shortNumber(rangeOf(absoluteError(answer, truth.values))[1]),
      });
    }

    // Drawing: the wave passes where the pointer is.
    start.pointing({
      step: 0.03,
      down: draws,
      move: draws,
      up: () => asker.changed(),
      hover(place) {
        pointer = place;
        drawStart();
      },
    });

    function draws([x, y]) {
      const height = Math.min(reach, Math.max(-reach, y));
      pointer = [x, height];
      const curve = Float32Array.from(state.curve);
      pull(curve, x, height, state.width);
      state.curve = curve;
      changed(true);
    }

    // Controls.
    const wave = room.controls("Wave");
    wave.button({
      label: "Random draw",
      main: true,
      press: () => setCurve(randomCurve(nodes, normalNumbers(), settings?.convention)),
    });
    wave.button({ label: "Flat", press: () => setCurve(new Float32Array(nodes)) });
    wave.slider({
      label: "Pull",
      min: 0.03,
      max: 0.2,
      step: 0.01,
      value: state.width,
      show: (width) => `${Math.round(200 * width)} % of the circle`,
      input: (width) => (state.width = width),
    });
    wave.note("Its mean stays zero: where it is pulled up, the rest sinks.");

    const sensing = room.controls("Sensors");
    const halved = [nodes];
    while (halved[0] % 2 === 0 && halved[0] > FEWEST) halved.unshift(halved[0] / 2);
    sensing.slider({
      label: "Along the circle",
      values: halved,
      value: nodes,
      show: (count) => count.toLocaleString("en"),
      input(count) {
        state.sensors = count;
        drawStart();
        asker.changed({ moving: true });
      },
      change: () => asker.changed(),
    });

    truthControls(room, {
      inputs: () => ({ ...inputs(), ...whole() }),
      method: "by Fourier's method",
      turn: () => turn,
      solved: (targets, from) => known(targets.data, from),
      sample(sample, from) {
        setCurve(Float32Array.from(sample.values.data));
        known(sample.targets.data, from);
      },
      magnify(times) {
        state.times = times;
        draw();
      },
    });

    /** The wave itself, whatever the sensors see of it. */
    function whole() {
      const { length } = state.curve;
      return {
        points: array(circlePoints(length), [length, 1]),
        values: array(state.curve, [length, 1]),
      };
    }

    function known(values, from) {
      state.truth = { values, from };
      draw();
    }

    function setCurve(curve) {
      if (curve.length % state.sensors) state.sensors = curve.length;
      state.curve = curve;
      changed();
    }

    changed();
    return { state };
  },
};

/** A curve on the circle as a line: the first point comes once more at the end. */
function around(curve) {
  const points = new Float32Array(2 * curve.length + 2);
  for (let k = 0; k <= curve.length; k++) {
    points.set([k / curve.length, curve[k % curve.length]], 2 * k);
  }
  return points;
}
