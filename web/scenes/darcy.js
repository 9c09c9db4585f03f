// Darcy flow: paint the permeability, scatter or remove its sensors, ask at any resolution.

import { array } from "../backends/npz.js";
import { rangeOf, Scale } from "../draw/colours.js";
import {
  awayFrom,
  brush,
  cellOf,
  centres,
  FEW,
  HIGH,
  highShare,
  LOW,
  normalNumbers,
  randomPermeability,
  seeded,
  SHARES,
} from "../problems/darcy.js";
import { absoluteError, counted, percent, relativeError, shortNumber } from "../shell/numbers.js";
import { truthControls } from "../shell/truth.js";

const CELLS = 64; // a side, of what is painted unless a sample is shown
const RESOLUTIONS = [16, 24, 32, 48, 64, 85, 96, 128, 192, 256, 384, 512];
const SENSORS = [64, 128, 256, 512, 1024, 2048, 4096];

export default {
  problem: "darcy",
  title: "Darcy flow",
  about:
    "Water seeps through ground of two kinds. Paint where it is easy to pass; the pressure follows.",

  open(room) {
    const [, high] = room.model.ranges?.targets?.[0] ?? [0, 0.02];
    const pressure = new Scale("sequential", 0, high); // it is nowhere below that of the edge
    const ground = new Scale("amount", LOW, HIGH);

    const painted = room.figure({ title: "Permeability", label: "permeability, to paint on" });
    const answered = room.figure({ title: "Pressure, by the model", label: "pressure of the model" });
    const solved = room.figure({ title: "Pressure, solved", label: "pressure of the solver" });
    const wrong = room.figure({ title: "Error of the model", label: "error of the model" });
    for (const figure of [solved, wrong]) figure.element.hidden = true;

    let turn = 0; // of what is shown: a solution that comes too late belongs to something else
    const state = {
      cells: randomPermeability(CELLS, normalNumbers(seeded(1))),
      side: CELLS,
      grid: true, // sensors in all cells, or scattered
      sensors: centres(CELLS),
      resolution: 64,
      tool: "paint",
      radius: 0.06,
      answer: null, // the last: values and cells a side
      places: null, // those of a sample, where one is shown
      truth: null, // values, cells a side and where they are from
      times: 1, // how much errors are magnified
    };

    const asker = room.asker({
      question({ moving, rows }) {
        if (state.places && !moving) {
          return { inputs: inputs(state.places), n: Math.sqrt(state.places.shape[0]) };
        }
        const fits = RESOLUTIONS.filter((n) => n * n <= rows);
        const n = Math.min(state.resolution, fits.at(-1) ?? RESOLUTIONS[0]);
        const coarse = moving && (n < state.resolution || state.places !== null);
        return { inputs: inputs(gridOf(n)), coarse, n };
      },
      show({ prediction }, { n }) {
        state.answer = { values: prediction.data, n };
        draw();
      },
    });

    /** What the model is asked. */
    function inputs(queries) {
      const { cells, sensors, side } = state;
      const count = sensors.length / 2;
      const values = new Float32Array(count);
      for (let k = 0; k < count; k++) {
        values[k] = cells[cellOf([sensors[2 * k], sensors[2 * k + 1]], side)];
      }
      return {
        points: array(sensors, [count, 2]),
        values: array(values, [count, 1]),
        queries,
      };
    }

    function changed(moving = false) {
      forgetTruth();
      drawGround();
      asker.changed({ moving });
    }

    let pointer = null;

    function drawGround() {
      painted.show((paint) => {
        paint.field({ values: state.cells, shape: [state.side, state.side], scale: ground });
        if (!state.grid) {
          paint.scatter({ points: state.sensors, colour: "#e8590c", radius: 2, outline: true });
        }
        if (pointer) paint.ring({ point: pointer, radius: state.radius });
      }, ground);
      const count = state.sensors.length / 2;
      const where = state.grid ? ", one in each cell" : "";
      painted.caption(`${counted(count, "sensor")}${where}.${unusual(count)}`);
    }

    /** Says where the model is asked what it was not trained for. */
    function unusual(count) {
      const share = highShare(state.cells);
      const [least, most] = SHARES.map((part) => Math.round(100 * part));
      const ground =
        share < SHARES[0] || share > SHARES[1]
          ? ` Unlike the training: ${Math.round(100 * share)} % is easy to pass, there it was ${least} to ${most} %.`
          : "";
      const few = count < FEW ? " So few see little of the ground." : "";
      return few + ground;
    }

    function draw() {
      const { answer, truth } = state;
      const show = (figure, { values, n }, scale) => {
        figure.show((paint) => paint.field({ values, shape: [n, n], scale }), scale);
        figure.reading((place) => shortNumber(values[cellOf(place, n)]));
      };
      if (answer) {
        show(answered, answer, pressure);
        answered.caption(`asked at ${answer.n} × ${answer.n} places`);
      }
      for (const figure of [solved, wrong]) figure.element.hidden = !truth;
      if (!answer || !truth) {
        room.tell({});
        return;
      }
      show(solved, truth, pressure);
      solved.caption(truth.from);
      if (truth.n !== answer.n) return;
      const error = absoluteError(answer.values, truth.values);
      show(wrong, { values: error, n: truth.n }, pressure.forErrors(state.times));
      wrong.caption(
        state.times === 1 ? "on the scale of the pressure" : `magnified ${state.times} times`,
      );
      room.tell({
        "relative error": percent(relativeError(answer.values, truth.values)),
        "largest error": shortNumber(rangeOf(error)[1]),
      });
    }

    function forgetTruth() {
      turn++;
      if (!state.truth) return;
      state.truth = null;
      draw();
    }

    // Painting.
    let before = null;
    painted.pointing({
      step: 1 / CELLS,
      down(place) {
        before = place;
        stroke(place);
      },
      move: stroke,
      up() {
        before = null;
        asker.changed();
      },
      hover(place) {
        pointer = place;
        drawGround();
      },
    });
    painted.reading((place) => shortNumber(state.cells[cellOf(place, state.side)]));

    function stroke(place) {
      pointer = place;
      const { tool, radius } = state;
      const done =
        tool === "remove"
          ? removeSensors(before, place, radius)
          : brush(state.cells, state.side, before, place, radius, tool === "paint" ? HIGH : LOW);
      before = place;
      if (done) changed(true);
      else drawGround();
    }

    function removeSensors(from, to, radius) {
      const kept = awayFrom(state.sensors, from, to, radius);
      if (kept.length === state.sensors.length || !kept.length) return false;
      Object.assign(state, { sensors: kept, grid: false });
      return true;
    }

    // Controls.
    const brushes = room.controls("Brush");
    brushes.choice({
      label: "Brush",
      options: [
        ["paint", "Paint"],
        ["erase", "Erase"],
        ["remove", "Remove sensors"],
      ],
      value: state.tool,
      change: (tool) => (state.tool = tool),
    });
    brushes.slider({
      label: "Width",
      min: 0.02,
      max: 0.2,
      step: 0.01,
      value: state.radius,
      show: (radius) => `${Math.round(200 * radius)} % of the side`,
      input: (radius) => (state.radius = radius),
    });

    const whole = room.controls("Ground");
    whole.button({
      label: "Random draw",
      main: true,
      press: () => setCells(randomPermeability(CELLS, normalNumbers())),
    });
    whole.button({
      label: "Clear",
      press: () => setCells(new Float32Array(CELLS * CELLS).fill(LOW)),
    });

    function setCells(cells) {
      if (state.side !== CELLS && state.grid) state.sensors = centres(CELLS);
      Object.assign(state, { cells, side: CELLS, places: null });
      changed();
    }

    const sensing = room.controls("Sensors");
    const count = sensing.slider({
      label: "Scattered",
      values: SENSORS,
      value: 512,
      show: (n) => n.toLocaleString("en"),
      input: (n) => scatter(n, true),
      change: (n) => scatter(n),
    });
    sensing.button({ label: "Scatter", press: () => scatter(count.value) });
    sensing.button({
      label: "All cells",
      press() {
        state.grid = true;
        state.sensors = centres(state.side);
        changed();
      },
    });

    function scatter(n, moving = false) {
      state.sensors = Float32Array.from({ length: 2 * n }, Math.random);
      state.grid = false;
      changed(moving);
    }

    const asking = room.controls("Answer");
    asking.slider({
      label: "Resolution",
      values: RESOLUTIONS,
      value: state.resolution,
      show: (n) => `${n} × ${n}`,
      input(n) {
        Object.assign(state, { resolution: n, places: null });
        forgetTruth();
        asker.changed({ moving: true });
      },
      change: () => asker.changed(),
    });

    truthControls(room, {
      inputs: () => ({
        points: gridOf(state.side),
        values: array(state.cells, [state.side ** 2, 1]),
        queries: state.places ?? gridOf(state.answer.n),
      }),
      method: "by finite volumes",
      turn: () => turn,
      solved: (targets, from) => known(targets.data, from),
      sample: showSample,
      magnify(times) {
        state.times = times;
        draw();
      },
    });

    function showSample({ points, values, queries, targets }, from) {
      const side = Math.sqrt(points.shape[0]);
      const cells = Float32Array.from(values.data);
      Object.assign(state, { cells, side, grid: true, sensors: points.data, places: queries });
      changed();
      known(targets.data, from);
    }

    function known(values, from) {
      state.truth = { values, n: Math.sqrt(values.length), from };
      draw();
    }

    changed();
    return { state };
  },
};

/** The centres of n x n cells as an array of places. */
function gridOf(n) {
  return array(centres(n), [n * n, 2]);
}
