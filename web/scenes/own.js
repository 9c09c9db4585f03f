// Any model that has no scene of its own: samples or a file of the user's, sliders for its parameters,
// its answer at any places as curves, a mesh or dots, with bounds where the model has them.

import { array, readNpz, writeNpz } from "../backends/npz.js";
import { rangeOf, Scale } from "../draw/colours.js";
import { Look, paintPlaces, turns } from "../draw/places.js";
import { answerIn, numbers, placesOf, shownOf, thinned } from "../problems/own.js";
import { Comparison } from "../shell/comparison.js";
import { percent } from "../shell/numbers.js";

const READ = [
  ...[".npz", ".csv", ".tsv", ".txt", ".dat", ".parquet", ".pq", ".h5", ".hdf5", ".vtu", ".vtk"],
  ...[".vts", ".vti", ".vtr", ".vtp", ".stl", ".ply", ".obj", ".nc", ".nc4", ".cdf", ".grib"],
  ...[".grib2", ".grb", ".grb2"],
];
const INPUTS = ["points", "values", "queries", "parameters"];
const LEVELS = [0.5, 0.8, 0.9, 0.95];

export default {
  about: "A saved model. Ask it with a sample or a file, and look at its answer.",

  async open(room) {
    const { model, backend } = room;
    const { spec, ranges } = model;
    const { outputs } = spec;
    const server = backend.kind === "server";

    const state = {
      asked: null, // what the model is asked: a sample's arrays
      places: null, // of the last answer
      frames: 1,
      times: null, // what they are called
      output: 0,
      input: 0,
      level: null, // of the bounds
      bounds: null, // low and high of the last answer
      file: null, // the answer to a file, as a file
      painted: {}, // numbers that the figures show, by their parts
    };
    const look = new Look();
    const answerScales = outputs.map((_, k) => scaleOf(ranges?.targets?.[k], spec.units?.[k]));

    const given = room.figure({ title: "Input", label: "the input of the model", large: true });
    const compared = new Comparison(room, {
      quantity: "Answer",
      truthTitle: "Truth",
      label: "the answer of the model",
      box: [[0, 1], [0, 1]],
      scale: () => (answerScales[state.output] ??= measured()),
      paint: draw,
      inputs: () => state.asked,
      method: "by the problem's solver",
      part: (values) => values.filter((_, k) => k % outputs.length === state.output),
      measured: outputs.length > 1 ? outputs[0] : null,
      overall: outputs.length === 1,
      showSample,
    });
    const { answered } = compared;
    const width = room.figure({ title: "Width of the bounds", label: "width of the bounds", large: true });
    const figures = [given, answered, compared.solved, compared.wrong, width];
    for (const figure of figures) figure.element.hidden = true;

    const player = room.player({
      show: redraw,
      time: (frame) => `t = ${state.times?.[frame] ?? (frame + 1) * spec.dt}`,
    });

    let known = {}; // places of the last question: sliders ask at the same ones again and again

    const asker = room.asker({
      question({ moving, rows }) {
        if (!state.asked) return null;
        let inputs = state.asked;
        let at = inputs.queries ?? inputs.points;
        const coarse = moving && at.data.length / spec.query_dimension > rows;
        if (coarse) {
          at = thinned(at, spec.query_dimension, rows);
          inputs = { ...inputs, queries: at };
        }
        if (state.level) inputs = { ...inputs, interval: state.level };
        if (known.at !== at) known = { at, places: placesOf(at, spec.query_dimension) };
        const { places } = known;
        const steps = state.times?.length ?? spec.steps;
        return { inputs, places, coarse, size: [steps, places.rows] };
      },
      show({ prediction, low, high }, { places }) {
        const bounds = low && high ? { low: low.data, high: high.data } : null;
        answer({ places, values: prediction.data, bounds });
      },
    });

    /** Numbers to show: of a question's answer or of a file's. */
    function answer({ places, values, bounds }) {
      const frames = values.length / (places.rows * outputs.length);
      Object.assign(state, { places, bounds, frames });
      if (player.frames !== frames) {
        player.frames = frames;
        player.frame = Math.min(player.frame, frames - 1);
      }
      answered.element.hidden = save.hidden = false;
      compared.show(values);
      drawWidth();
    }

    function redraw() {
      compared.redraw();
      drawWidth();
    }

    function draw(figure, values, scale, part) {
      const { places, output, bounds } = state;
      if (!places) return;
      const alone = part === "error"; // of the output that is shown, and of no other
      const [which, count] = alone ? [0, 1] : [output, outputs.length];
      const shown = (all) => all && shownOf(all, places, player.frame, which, count);
      state.painted[part] = shown(values);
      const band = part === "answer" && bounds;
      const beside = part === "answer" && compared.truth && shown(compared.truth.values);
      paintPlaces(figure, places, state.painted[part], scale, {
        look,
        low: shown(band?.low),
        high: shown(band?.high),
        beside: beside?.length === state.painted[part].length ? beside : null,
      });
      if (part === "answer" && places.dimension === 1) {
        figure.keys([
          ["Model", "accent"],
          ...(beside ? [["Truth", "ink", "dashed"]] : []),
          ...(band ? [[`Bounds of ${percent(state.level)}`, "line"]] : []),
        ]);
      }
    }

    /** How far the bounds are apart; of curves they are drawn around the answer. */
    function drawWidth() {
      const { places, bounds, output } = state;
      width.element.hidden = !bounds || places.dimension === 1;
      if (!bounds) return;
      const [low, high] = [bounds.low, bounds.high].map((all) => {
        return shownOf(all, places, player.frame, output, outputs.length);
      });
      const apart = high.map((value, k) => value - low[k]);
      state.painted.width = apart;
      if (places.dimension > 1) {
        const scale = compared.scale().forErrors(compared.times);
        paintPlaces(width, places, apart, scale, { look });
      }
      const truth = compared.truth?.values;
      const caption = truth?.length === bounds.low.length ? held(truth, bounds) : "";
      width.caption(caption);
      if (places.dimension === 1) answered.caption(caption);
    }

    function held(truth, { low, high }) {
      const inside = truth.reduce((sum, value, k) => sum + (value >= low[k] && value <= high[k]), 0);
      return `The truth lies within at ${percent(inside / truth.length)} of the places.`;
    }

    /** A scale of what is shown, where nothing is known of training: made once. */
    function measured() {
      const part = (values) => values.filter((_, k) => k % outputs.length === state.output);
      const all = [compared.answer, compared.truth?.values].filter(Boolean).map(part);
      return scaleOf(rangeOf(...all), spec.units?.[state.output]);
    }

    const inputScales = [];

    function drawInput() {
      const { points, values } = state.asked ?? {};
      const channels = spec.inputs.length;
      given.element.hidden = !points || !values || !channels || spec.dimension > 3;
      if (given.element.hidden) return;
      const places = placesOf(points, spec.dimension);
      const shown = shownOf(values.data, places, 0, state.input, channels);
      inputScales[state.input] ??= scaleOf(
        ranges?.values?.[state.input] ?? rangeOf(shown),
        spec.input_units?.[state.input],
      );
      given.title.textContent = `Input: ${spec.inputs[state.input]}`;
      paintPlaces(given, places, shown, inputScales[state.input], { look });
    }

    if (spec.dimension === 3) turns(given, look, turned);
    if (spec.query_dimension === 3) {
      for (const figure of [answered, compared.solved, compared.wrong, width]) {
        turns(figure, look, turned);
      }
    }

    function turned() {
      drawInput();
      redraw();
    }

    // Controls.
    const asking = room.controls("Answer");
    const names = outputs.map((name, k) => [String(k), name]);
    if (outputs.length > 1) {
      const make = outputs.length > 3 ? "list" : "choice";
      asking[make]({
        label: "Output",
        options: names,
        value: "0",
        change(k) {
          state.output = Number(k);
          compared.measured = outputs[state.output];
          redraw();
        },
      });
    }
    if (spec.inputs.length > 1) {
      asking.list({
        label: "Input",
        options: spec.inputs.map((name, k) => [String(k), `Input: ${name}`]),
        value: "0",
        change(k) {
          state.input = Number(k);
          drawInput();
        },
      });
    }
    const save = asking.button({ label: "Download the answer", press: () => room.try(download) });
    save.hidden = true;

    const sliders = spec.parameters.length && room.controls("Parameters");
    const parameters = spec.parameters.map((name, k) => {
      const [low, high] = ranges?.parameters?.[k] ?? [0, 1];
      const unit = spec.parameter_units?.[k] ? ` ${spec.parameter_units[k]}` : "";
      return sliders.slider({
        label: name,
        min: low,
        max: high,
        step: (high - low) / 200 || 1,
        value: (low + high) / 2,
        show: (value) => `${Number(value.toPrecision(4))}${unit}`,
        input: (value) => parameter(k, value, true),
        change: (value) => parameter(k, value, false),
      });
    });

    function parameter(k, value, moving) {
      if (!state.asked) return;
      const { data, shape } = state.asked.parameters;
      state.asked = { ...state.asked, parameters: array(data.with(k, value), shape) };
      compared.forget();
      answered.caption("");
      asker.changed({ moving });
    }

    const levels = server && model.bounds ? LEVELS.filter((level) => level <= model.highest_level) : [];
    if (levels.length) {
      const group = room.controls("Bounds");
      group.choice({
        label: "Bounds that contain the truth this often",
        options: [["off", "Off"], ...levels.map((level) => [String(level), percent(level)])],
        value: "off",
        change(level) {
          state.level = level === "off" ? null : Number(level);
          if (state.file) room.try(() => answerFile(state.file.source));
          else asker.changed();
        },
      });
      group.note("How often the truth lies within, on average over samples like those of training.");
    }

    const files = room.controls("Your file");
    if (server) {
      files.file({
        label: "Ask with a file",
        accept: READ.join(","),
        chosen: (file) => room.try(() => answerFile(file)),
      });
      files.note("Any single file that ipot predict reads: npz, CSV, Parquet, HDF5, VTK, netCDF, GRIB.");
    } else files.note("This page runs without a server, and only a server reads files and knows bounds.");

    if (model.samples || backend.solves) compared.controls(1);

    // What is asked.
    function showSample(sample) {
      const taken = Object.fromEntries(
        INPUTS.filter((name) => sample[name]).map((name) => [name, plain(sample[name])]),
      );
      compared.forget();
      thin.textContent = sample.whole ? ofHowMany(sample) : "";
      thin.hidden = !sample.whole;
      const times = sample.times ? Array.from(sample.times.data, Number) : null;
      Object.assign(state, { asked: taken, file: null, times });
      if (sliders) sliders.element.hidden = false;
      parameters.forEach((slider, k) => (slider.value = taken.parameters.data[k]));
      answered.caption("");
      drawInput();
      asker.changed();
      return sample.targets ? Float32Array.from(sample.targets.data) : null;
    }

    /** Parameters are all that such a model is given, and there are no samples: the middle of their
     *  ranges, on a regular grid. */
    function askAnywhere() {
      const middle = Float64Array.from(parameters, (slider) => slider.value);
      state.asked = {
        queries: gridOver(model.box),
        parameters: array(middle, [middle.length]),
      };
      asker.changed();
    }

    async function answerFile(source) {
      const began = performance.now();
      const interval = state.level;
      const found = await backend.answerFile(source, { interval });
      const took = performance.now() - began;
      state.file = { ...found, source };
      // The inputs are in the file: the page does not know them.
      state.asked = null;
      if (sliders) sliders.element.hidden = true;
      thin.hidden = true;
      compared.forget();
      drawInput();
      await showAnswer(source, found, took, interval);
    }

    /** A picture of the answer to a file, where its numbers can be had. */
    async function showAnswer(source, found, took, interval) {
      let read;
      try {
        const whole = found.name.endsWith(".npz")
          ? found
          : await backend.answerFile(source, { interval, format: "npz" });
        read = answerIn(await readNpz(whole.bytes), spec);
      } catch {
        Object.assign(state, { places: null, bounds: null });
        for (const figure of figures) figure.element.hidden = true;
        const why = model.series ? "it is a forecast on named coordinates" : "it has several cases";
        missing.hidden = save.hidden = false;
        missing.textContent =
          `${source.name} is answered. There is no picture of it, since ${why}: download the answer.`;
        room.took({ prediction: { shape: [0, 0, 0] } }, { took, size: null });
        return;
      }
      missing.hidden = true;
      const { places, values, low, high, truth, times, frames, samples } = read;
      state.times = times;
      answer({ places, values, bounds: low && high ? { low, high } : null });
      const first = samples > 1 ? `, the first of ${samples} samples` : "";
      answered.caption(`${source.name}${first}`);
      room.took({ prediction: null }, { took, size: [frames, places.rows] });
      if (truth) {
        compared.known(truth, `in ${source.name}`);
        drawWidth();
      }
    }

    function download() {
      if (state.file) return offer(state.file);
      const answer = room.last?.answer;
      const { prediction, low, high } = answer;
      const at = room.last.inputs.queries ?? room.last.inputs.points;
      const arrays = { queries: at, prediction, ...(low && { low }), ...(high && { high }) };
      return offer({ bytes: writeNpz(arrays), name: `${model.name}_answer.npz` });
    }

    const thin = room.note("");
    thin.className = "caption thin";
    thin.hidden = true;
    const missing = room.note(whatIsMissing(model, server));
    missing.hidden = Boolean(model.samples) || model.alone;
    if (sliders) sliders.element.hidden = !missing.hidden;
    if (!model.samples && model.alone) askAnywhere();
    if (model.samples) {
      await room.try(async () => {
        compared.known(showSample(await backend.sample(0)), "test sample 1");
      });
    }
    return { state, compared, player, look };
  },
};

/** What is shown of a sample that was too large to come with its model. */
function ofHowMany({ whole, points, queries }) {
  const [all, asked] = Array.from(whole.data, Number);
  const given = points ? points.shape[0] : 0;
  const answered = queries ? queries.shape[0] : given;
  const many = (count) => count.toLocaleString("en");
  const from = all ? `is asked with ${many(given)} of the ${many(all)} points of this sample, and ` : "";
  return (
    `Of so large a sample some places came with the model, drawn at random: it ${from}answers at ` +
    `${many(answered)} of ${many(asked)}. Ask with your own file for all of them.`
  );
}

/** What to do where there is nothing to ask with. */
function whatIsMissing({ name, spec }, server) {
  const needed = [
    ...(spec.inputs.length || !spec.parameters.length ? ["points", "values"] : []),
    ...(spec.parameters.length ? ["parameters"] : []),
  ];
  const arrays = [...needed, "queries", "targets"].join(", ");
  const file = `samples.npz in its folder: arrays ${arrays}, with an axis for samples in front`;
  const begin = `The model “${name}” came without samples`;
  return server
    ? `${begin}. Ask it with a file of yours (at “Your file”), or start again with ${file}.`
    : `${begin}, and only a server reads files. Run ipot serve, or export it with ${file}.`;
}

/** Places on a regular grid over a box, about as far apart along all axes. */
function gridOver(box) {
  const most = [200, 2500, 4096][box.length - 1] ?? 4096;
  const lengths = box.map(([low, high]) => high - low || 1);
  const volume = lengths.reduce((product, length) => product * length, 1);
  const apart = (volume / most) ** (1 / box.length);
  let rows = [[]];
  box.forEach(([low, high], axis) => {
    const count = Math.min(most, Math.max(2, Math.round(lengths[axis] / apart)));
    const line = Array.from({ length: count }, (_, k) => low + ((high - low) * k) / (count - 1));
    rows = rows.flatMap((row) => line.map((place) => [...row, place]));
  });
  return array(Float64Array.from(rows.flat()), [rows.length, box.length]);
}

/** A scale over a range: about zero where a field has both signs. */
function scaleOf(range, unit) {
  if (!range) return undefined;
  // What is almost zero beside the other end is zero.
  const [low, high] = range.map((end, k) => (Math.abs(end) < 1e-4 * Math.abs(range[1 - k]) ? 0 : end));
  const both = low < 0 && high > 0 && Math.min(-low, high) > 0.15 * Math.max(-low, high);
  return both ? Scale.around(low, high, unit) : new Scale("sequential", low, high, unit);
}

/** An array whose numbers are of a kind that can be sent. */
function plain({ data, shape }) {
  return array(data instanceof Float32Array ? data : numbers(data), shape);
}

/** Hand a file to the user. */
function offer({ bytes, name }) {
  const address = URL.createObjectURL(new Blob([bytes]));
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
