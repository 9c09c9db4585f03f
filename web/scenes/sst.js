// Sea-surface temperature: remove sensors from the ocean, and forecast the weeks that follow.

import { array } from "../backends/npz.js";
import { Scale } from "../draw/colours.js";
import { Cells, Globe, GLOBE_BOX, placeName } from "../draw/globe.js";
import { framesOf } from "../problems/rollout.js";
import { placeOf, View } from "../problems/sphere.js";
import {
  forecastInputs,
  forecastTemperatures,
  inRegion,
  kelvin,
  REGIONS,
  simpleForecasts,
  spreadAnomaly,
  Weeks,
  withinReach,
} from "../problems/sst.js";
import { counted, fixed, roundNumbers } from "../shell/numbers.js";

const DEGREE = Math.PI / 180;
const ANOMALY = new Scale("diverging", -4, 4, "K");
const TEMPERATURE = new Scale("sequential", -2, 32, "°C");
const ERROR = new Scale("error", 0, 4, "K");
/** The lines of the chart: name, colour of the theme, and how it is dashed. */
const LINES = {
  model: ["Model", "accent", "solid", []],
  persistence: ["Persistence", "warm", "dashed", [7, 4]],
  damped: ["Damped persistence", "soft", "dotted", [2, 3]],
  season: ["Season alone", "soft", "solid", []],
};

export default {
  problem: "sst",
  title: "Sea temperature",
  about:
    "Weekly temperatures of the oceans, as measured. Take sensors away and see how well the next weeks are still forecast.",

  // What is learnt may be the little that damped persistence leaves: the chart has it in kelvin.
  scored: false,

  async open(room) {
    const { spec } = room.model;
    const history = spec.inputs.length;
    const target = spec.outputs[0];
    const arrays = await room.backend.extras();
    if (!arrays) throw new Error("The weeks of the ocean did not come with this model.");
    const weeks = weeksOf(arrays);
    const steps = Math.min(spec.steps, room.backend.mostSteps, weeks.leads);
    const last = weeks.count - steps;

    let pointer = null;
    const state = {
      weeks,
      first: history, // the first week that is forecast
      kept: new Array(weeks.points).fill(true),
      view: "anomaly", // or "temperature" or "error"
      tool: "turn",
      radius: 12 * DEGREE,
      answer: null, // forecasts in degrees by their names, one array for each week
      numbers: null, // their errors in kelvin
      player: null,
      globe: null,
    };

    const figure = (options) => room.figure({ box: GLOBE_BOX, ...options });
    const sensors = figure({ title: "Sensors", label: "the last week at the sensors, to turn and to remove from" });
    const truth = figure({ title: "Measured", label: "the week that is forecast, as measured" });
    const model = figure({ title: "Model", label: "forecast of the model" });
    const persistence = figure({ title: "Persistence", label: "forecast that nothing changes" });
    const chart = room.figure({
      title: "Error by weeks ahead",
      label: "error of the forecasts in kelvin for each week ahead",
      wide: true,
      aspect: 4.5,
    });
    const player = room.player({
      frames: steps,
      time: (index) => `week ${index + 1}`,
      rate: 1.5,
      show: () => draw(),
    });
    state.player = player;

    const asker = room.asker({
      question: () => {
        const { points, values, parameters } = inputs();
        const rows = points.length / 3;
        return {
          first: state.first,
          known: known(),
          inputs: {
            points: array(points, [rows, 3]),
            values: array(values, [rows, history]),
            queries: array(weeks.vectors, [weeks.points, 3]),
            parameters: array(parameters, [2]),
            steps,
          },
        };
      },
      show({ prediction }, { first, known }) {
        const frames = framesOf(prediction.data, prediction.shape);
        const { persistence, damped, season } = simpleForecasts(weeks, first, steps, known);
        state.answer = {
          first,
          model: forecastTemperatures(weeks, first, target, frames, known),
          persistence,
          damped,
          season,
        };
        state.truth = Array.from({ length: steps }, (_, k) => weeks.temperatures(first + k));
        state.numbers = {};
        for (const name of Object.keys(LINES)) {
          state.numbers[name] = state.answer[name].map((f, k) => kelvin(weeks, f, state.truth[k]));
        }
        draw();
      },
    });

    function inputs() {
      const past = target === "temperature" ? "temperature" : "anomaly";
      return forecastInputs(weeks, state.first, history, state.kept, past);
    }

    /** The last anomaly everywhere, as far as the sensors tell. */
    function known() {
      return spreadAnomaly(weeks, weeks.anomaly(state.first - 1), state.kept);
    }

    function changed(moving = false) {
      drawSensors();
      asker.changed({ moving });
    }

    /** A field of temperatures in a week as it is shown. */
    function shownOf(temperatures, week) {
      if (state.view === "temperature") return temperatures;
      const cycle = weeks.cycle(week);
      return Float32Array.from(temperatures, (t, i) => t - cycle[i]);
    }

    function scale() {
      return state.view === "temperature" ? TEMPERATURE : ANOMALY;
    }

    function show(figure, values, scale, over = () => {}) {
      figure.show((paint) => {
        const { faint: land, paper: unknown } = paint.colours;
        state.globe.paint(paint, { values, scale, land, unknown });
        over(paint);
      }, scale);
      figure.reading((place) => {
        const vector = state.globe.view.unproject(...place);
        if (!vector) return "";
        const at = placeOf(vector);
        const cell = state.globe.grid.at(...at);
        if (cell < 0) return placeName(...at);
        const value = values[cell];
        const said = value === value ? `${fixed(value, 1)} ${scale.unit}` : "no sensor";
        return `${placeName(...at)}: ${said}`;
      });
    }

    function drawSensors() {
      const { first, kept, globe } = state;
      const values = shownOf(weeks.temperatures(first - 1), first - 1);
      const removed = [];
      kept.forEach((yes, k) => {
        if (yes) return;
        values[k] = NaN;
        removed.push(...weeks.vectors.subarray(3 * k, 3 * k + 3));
      });
      show(sensors, values, scale(), (paint) => {
        const { soft: colour, paper } = paint.colours;
        paint.scatter({ points: globe.seen(removed), colour, radius: 1 });
        if (!pointer || state.tool === "turn") return;
        const points = globe.circle(pointer, state.radius);
        paint.line({ points, width: 3, colour: paper });
        paint.line({ points, width: 1.25 });
      });
      const count = kept.filter(Boolean).length;
      const left = count < weeks.points ? " left" : "";
      sensors.caption(`${weeks.date(first - 1)}: ${counted(count, "sensor")}${left}`);
    }

    function draw() {
      const { answer, numbers } = state;
      if (!answer) return;
      const k = player.frame;
      const week = answer.first + k;
      const measured = state.truth[k];
      show(truth, shownOf(measured, week), scale());
      truth.caption(weeks.date(week));
      for (const [figure, name] of [[model, "model"], [persistence, "persistence"]]) {
        if (state.view === "error") {
          show(figure, Float32Array.from(answer[name][k], (t, i) => Math.abs(t - measured[i])), ERROR);
        } else show(figure, shownOf(answer[name][k], week), scale());
        figure.caption(`off by ${numbers[name][k].toFixed(2)} K`);
      }
      room.tell(
        Object.fromEntries(
          Object.entries(LINES).map(([name, [text]]) => [text, `${numbers[name][k].toFixed(3)} K`]),
        ),
      );
      drawChart(k);
    }

    function drawChart(now) {
      const { numbers } = state;
      const most = Math.max(...Object.values(numbers).flat());
      const ticks = roundNumbers(0, 1.1 * most);
      const step = ticks[1] - ticks[0];
      const top = step * Math.ceil((1.02 * most) / step);
      const margin = 0.015 * steps;
      chart.box = [[1 - margin, Math.max(2, steps) + margin], [0, top]];
      const x = Array.from({ length: steps }, (_, k) => k + 1);
      chart.axes({ x, y: [...ticks.filter((y) => y < top), top] });
      chart.show((paint) => {
        const mark = [now + 1, 0, now + 1, top];
        paint.line({ points: mark, colour: paint.colours.soft, dash: [3, 3], width: 1 });
        for (const [name, [, colour, , dash]] of Object.entries(LINES).reverse()) {
          const points = numbers[name].flatMap((error, k) => [k + 1, error]);
          const width = name === "model" ? 2.5 : 1.75;
          paint.line({ points, colour: paint.colours[colour], dash, width });
        }
        const here = [now + 1, numbers.model[now]];
        paint.scatter({ points: here, colour: paint.colours.accent, radius: 4.5 });
      });
      chart.reading(([x]) => {
        const k = Math.min(steps, Math.max(1, Math.round(x))) - 1;
        return `week ${k + 1}: ${numbers.model[k].toFixed(3)} K`;
      });
    }
    chart.keys(Object.values(LINES).map(([text, colour, dash]) => [text, colour, dash]));
    chart.caption("kelvin, root of the mean square over the ocean");

    function scrub(week) {
      player.pause();
      player.frame = Math.round(week) - 1;
      return true;
    }
    chart.pointing({
      scrolls: true,
      down: ([x], event) => event?.pointerType !== "touch" && scrub(x),
      move: ([x]) => scrub(x),
      arrow: ([right]) => scrub(player.frame + 1 + right),
    });

    // The globe.
    state.globe = new Globe(new Cells([...weeks.latitude], [...weeks.longitude]), () => {
      drawSensors();
      draw();
    });
    state.globe.view = new View(0.1, 3.6);
    state.globe.turns(sensors, {
      brush: () => state.tool !== "turn",
      stroke: (vector) => set(withinReach(weeks, vector, state.radius), state.tool === "restore", true),
      done: () => asker.changed(),
      hover(place) {
        pointer = place;
        drawSensors();
      },
    });
    for (const other of [truth, model, persistence]) state.globe.turns(other);

    /** Keep the sensors of some places, or remove them; the last one stays. */
    function set(places, keep, moving = false) {
      const kept = state.kept.map((yes, k) => (places[k] ? keep : yes));
      if (!kept.some(Boolean)) {
        room.fail(new Error("These are the last sensors: a forecast needs one at least."));
        return;
      }
      state.kept = kept;
      changed(moving);
    }

    // Controls.
    const pointing = room.controls("Pointer");
    pointing.choice({
      label: "Pointer",
      options: [
        ["turn", "Turn"],
        ["remove", "Remove"],
        ["restore", "Restore"],
      ],
      value: state.tool,
      change(tool) {
        state.tool = tool;
        drawSensors();
      },
    });
    pointing.slider({
      label: "Width",
      min: 4,
      max: 30,
      value: Math.round(state.radius / DEGREE),
      show: (degrees) => `${2 * degrees}°`,
      input: (degrees) => (state.radius = degrees * DEGREE),
    });

    const regions = room.controls("Sensors of a region");
    const region = regions.list({
      label: "Region",
      options: Object.keys(REGIONS).map((name) => [name, name]),
      value: "Tropics",
      change: () => {},
    });
    regions.button({
      label: "Remove",
      main: true,
      press: () => set(inRegion(weeks, region.value), false),
    });
    regions.button({ label: "Restore", press: () => set(inRegion(weeks, region.value), true) });
    regions.button({ label: "All", press: () => set(state.kept.map(() => true), true) });

    const asking = room.controls("Forecast");
    asking.slider({
      label: "From the week of",
      min: history,
      max: last,
      value: state.first,
      show: (week) => weeks.date(week),
      input(week) {
        state.first = week;
        changed(true);
      },
      change: () => asker.changed(),
    });

    const looking = room.controls("Shown");
    looking.choice({
      label: "Shown",
      options: [
        ["anomaly", "Anomaly"],
        ["temperature", "°C"],
        ["error", "Error"],
      ],
      value: state.view,
      change(view) {
        state.view = view;
        drawSensors();
        draw();
      },
    });
    looking.note("An anomaly is what is left of a temperature when the season is taken off.");
    looking.note("Nothing is solved here: the truth was measured.");

    player.frame = 0;
    changed();
    return { state };
  },
};

/** The weeks from the arrays that came with the model. */
function weeksOf({ temperature, latitude, longitude, cycle, damping, start }) {
  return new Weeks({
    temperature: temperature.data,
    latitude: latitude.data,
    longitude: longitude.data,
    cycle: cycle.data,
    damping: damping.data,
    start: Number(start.data[0]),
  });
}
