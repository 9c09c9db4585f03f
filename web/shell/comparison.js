// A model's answer, and beside it the truth and the error where they are known.

import { rangeOf } from "../draw/colours.js";
import { absoluteError, percent, relativeError, shortNumber } from "./numbers.js";
import { truthControls } from "./truth.js";

/** Three figures over one box with one scale, `controls()` that bring the truth, and the numbers
 *  that compare.
 *
 *  - `paint(figure, values, scale, part)` shows flat values in a figure; `part` is "answer", "truth"
 *    or "error".
 *  - `scale()` is the scale of truth and answer.
 *  - `inputs()` is what the solver is asked, and `method` how it solves, in words.
 *  - `showSample(sample)` shows the inputs of a sample, and gives its targets as flat values.
 *  - `part(values)` are those of the values whose errors are shown, and `measured` what they are
 *    called; all, unless said. `overall` says that the error of all is told as well.
 *  - `truthTitle` is over the truth, where that is no solver's. */
export class Comparison {
  answer = null;
  truth = null;
  #times = 1;
  #turn = 0; // of what is shown: a solution that comes too late belongs to something else

  constructor(room, { quantity, label, box, scale, paint, inputs, method, showSample, ...about }) {
    Object.assign(this, { room, scale, paint, inputs, method, showSample });
    const plain = { truthTitle: `${quantity}, solved`, measured: null, overall: true };
    Object.assign(this, { part: (values) => values, ...plain, ...about });
    const make = (title, what) => room.figure({ title, box, label: what, large: true });
    this.answered = make(`${quantity}, by the model`, label);
    this.solved = make(this.truthTitle, `${this.truthTitle}, to compare with`);
    this.wrong = make("Error of the model", `error of the model, ${quantity}`);
    this.#hide();
  }

  /** How much errors are magnified. */
  get times() {
    return this.#times;
  }

  /** Something else is shown: the truth that was known is none of it. */
  forget() {
    this.#turn++;
    if (!this.truth) return;
    this.truth = null;
    this.#compare();
  }

  /** The model has answered. */
  show(values) {
    this.answer = values;
    this.redraw();
  }

  /** Paint all that is there. */
  redraw() {
    if (this.answer) this.paint(this.answered, this.answer, this.scale(), "answer");
    this.#compare();
  }

  #hide() {
    for (const figure of [this.solved, this.wrong]) figure.element.hidden = !this.truth;
  }

  #compare() {
    const { answer, truth, room } = this;
    this.#hide();
    if (!truth) {
      room.tell({});
      return;
    }
    this.paint(this.solved, truth.values, this.scale(), "truth");
    this.solved.caption(truth.from);
    if (answer?.length !== truth.values.length) return;
    const [found, wanted] = [answer, truth.values].map((values) => this.part(values));
    const error = absoluteError(found, wanted);
    this.paint(this.wrong, error, this.scale().forErrors(this.#times), "error");
    this.wrong.caption(
      this.#times === 1 ? "same scale as the answer, from zero" : `magnified ${this.#times} times`,
    );
    const numbers = {};
    if (this.overall) numbers["relative error"] = percent(relativeError(answer, truth.values));
    if (this.measured) {
      numbers[`relative error of ${this.measured}`] = percent(relativeError(found, wanted));
    }
    room.tell({ ...numbers, "largest error": `${shortNumber(rangeOf(error)[1])} ${this.scale().unit}`.trim() });
  }

  /** The controls that bring the truth, behind those that are there already; so many samples have
   *  been shown before. */
  controls(shown = 0) {
    return truthControls(this.room, {
      shown,
      inputs: this.inputs,
      method: this.method,
      turn: () => this.#turn,
      solved: (targets, from) => this.known(targets.data, from),
      sample: (sample, from) => this.known(this.showSample(sample), from),
      magnify: (times) => {
        this.#times = times;
        this.redraw();
      },
    });
  }

  /** The truth of what is shown, as flat values; null where a sample has none. */
  known(values, from) {
    this.truth = values && { values, from };
    this.#compare();
  }
}
