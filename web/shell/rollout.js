// A model's answer in time, and beside it the truth and the error where they are known.

import { rangeOf } from "../draw/colours.js";
import { relativeErrors } from "../problems/rollout.js";
import { absoluteError, percent, relativeError, roundNumbers, shortNumber } from "./numbers.js";
import { truthControls } from "./truth.js";

/** Three figures with one scale, a chart of the error over time, a player for all of them, and
 *  `controls()` that bring the truth.
 *
 *  - `figure(options)` makes a figure like those of the scene; `quantity` is what is shown.
 *  - `steps` is how many times there are, and `time(index)` the text of one.
 *  - `frames(array)` is what is shown of an answer or a truth, one array for each time, and `scale()`
 *    its scale; `paint(figure, values, scale, part)` shows one of them, where `part` is "answer",
 *    "truth" or "error".
 *  - `inputs()` is what the solver is asked, and `method` how it solves, in words.
 *  - `showSample(sample)` shows the inputs of a sample.
 *
 *  Answers and truths are arrays (times, places, channels). */
export class Rollout {
  answer = null;
  truth = null;
  #times = 1;
  #turn = 0; // of what is shown: a solution that comes too late belongs to something else
  #shown = { answer: [], truth: [] }; // what is shown of both, one array for each time

  constructor(room, options) {
    const { figure, quantity, steps, time, rate = 6 } = options;
    Object.assign(this, { room, ...options });
    this.answered = figure({ title: "Model", label: `${quantity}, by the model` });
    this.solved = figure({ title: "Solver", label: `${quantity} of the solver` });
    this.wrong = figure({ title: "Error", label: `error of the model, ${quantity}` });
    this.course = room.figure({
      title: "Error in time",
      label: "relative error of the model at each time",
      wide: true,
      aspect: 5,
    });
    this.player = room.player({ frames: steps, time, rate, show: () => this.redraw() });
    this.player.frame = 0;
    this.course.pointing({
      scrolls: true,
      down: ([x], event) => event?.pointerType !== "touch" && this.#scrub(x),
      move: ([x]) => this.#scrub(x),
      arrow: ([right]) => this.#scrub(this.player.frame + 1 + right),
    });
    this.#hide();
  }

  /** Which time is shown, from 0. */
  get frame() {
    return this.player.frame;
  }

  /** Something else is shown: the truth that was known is none of it. */
  forget() {
    this.#turn++;
    this.truth = null;
  }

  /** The model has answered, perhaps not yet for all times. */
  show(answer) {
    this.answer = answer;
    this.refresh();
  }

  /** Something else of what is there is to be shown. */
  refresh() {
    for (const part of ["answer", "truth"]) {
      this.#shown[part] = this[part] ? this.frames(this[part]) : [];
    }
    this.redraw();
  }

  /** Paint all that is there at the time that is shown. */
  redraw() {
    const { answer, truth } = this.#shown;
    this.#hide();
    if (!answer.length) return;
    const now = Math.min(this.frame, answer.length - 1);
    this.paint(this.answered, answer[now], this.scale(), "answer");
    this.answered.caption(now < this.frame ? this.time(now) : "");
    if (!this.truth || !truth[now]) {
      this.room.tell({});
      return;
    }
    this.paint(this.solved, truth[now], this.scale(), "truth");
    this.solved.caption(this.truth.from);
    const error = absoluteError(answer[now], truth[now]);
    this.paint(this.wrong, error, this.scale().forErrors(this.#times), "error");
    this.wrong.caption(
      this.#times === 1 ? "same scale as the model, from zero" : `magnified ${this.#times} times`,
    );
    const most = `${shortNumber(rangeOf(error)[1])} ${this.scale().unit}`.trim();
    this.room.tell({
      [`relative error, ${this.time(now)}`]: percent(relativeError(answer[now], truth[now])),
      "relative error, all times": percent(over(answer, truth)),
      [`largest error, ${this.time(now)}`]: most,
    });
    this.#drawCourse(relativeErrors(answer, truth), now);
  }

  #hide() {
    for (const figure of [this.solved, this.wrong, this.course]) {
      figure.element.hidden = !this.truth;
    }
  }

  #drawCourse(errors, now) {
    const { course } = this;
    const [, most] = rangeOf(errors.map((error) => 100 * error));
    const ticks = roundNumbers(0, 1.08 * most);
    const step = ticks[1] - ticks[0];
    const top = step * Math.ceil((1.02 * most) / step);
    const margin = 0.015 * errors.length;
    course.box = [[1 - margin, Math.max(2, errors.length) + margin], [0, top]];
    const whole = roundNumbers(1, errors.length, 6).filter(Number.isInteger);
    course.axes({ x: whole, y: [...ticks.filter((y) => y < top), top] });
    const points = errors.flatMap((error, k) => [k + 1, 100 * error]);
    course.show((paint) => {
      const { soft, accent } = paint.colours;
      paint.line({ points: [now + 1, 0, now + 1, top], colour: soft, dash: [3, 3], width: 1 });
      paint.line({ points, colour: accent, width: 2 });
      paint.scatter({ points: [now + 1, 100 * errors[now]], colour: accent, radius: 4.5 });
    });
    course.caption(`relative error in %, from ${this.time(0)} to ${this.time(errors.length - 1)}`);
    course.reading(([x]) => {
      const k = Math.min(errors.length, Math.max(1, Math.round(x))) - 1;
      return `${percent(errors[k])} at ${this.time(k)}`;
    });
  }

  #scrub(time) {
    this.player.pause();
    this.player.frame = Math.round(time) - 1;
    return true;
  }

  /** The controls that bring the truth, behind those that are there already, and something to
   *  be said of it. */
  controls(note = null) {
    const group = truthControls(this.room, {
      inputs: this.inputs,
      method: this.method,
      turn: () => this.#turn,
      solved: (targets, from) => this.#known(targets, from),
      sample: (sample, from) => this.startFrom(sample, from),
      magnify: (times) => {
        this.#times = times;
        this.redraw();
      },
    });
    if (note) group.note(note);
  }

  /** Show a test sample, whose truth comes with it. */
  startFrom(sample, from) {
    this.showSample(sample);
    this.answer = null; // that of what was shown before
    this.#known(sample.targets, from);
  }

  #known(targets, from) {
    this.truth = { ...targets, from };
    this.refresh();
  }
}

/** The relative error of all times together. */
function over(answer, truth) {
  const each = truth.slice(0, answer.length);
  let gap = 0;
  let size = 0;
  each.forEach((frame, t) => {
    for (let i = 0; i < frame.length; i++) {
      gap += (answer[t][i] - frame[i]) ** 2;
      size += frame[i] ** 2;
    }
  });
  return Math.sqrt(gap / size);
}
