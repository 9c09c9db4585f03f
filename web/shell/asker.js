// Questions to a model that follow a pointer: at most one is on its way, and the last state wins.
// One that takes long is stopped where another is asked.

const QUICK = 60; // milliseconds that an answer may take while something moves
const REST = 180; // milliseconds without a change after which it is at rest
const SOON = 150; // milliseconds that an answer is waited for before a newer question stops it
const FEWEST = 256;
const MOST = 1 << 20;

/** Asks `ask(inputs, signal)` and hands what comes to `show(answer, question)`. The signal is that
 *  of an `AbortController`: nobody waits for the answer any longer.
 *
 *  `question({ moving, rows })` gives `{ inputs, coarse }` and whatever else `show` wants to know.
 *  It is called when a question is sent and not before, so that it sees the latest state. While
 *  something moves, `rows` says how many queries can be answered quickly enough, by what the last
 *  answers took; a question that asked fewer than it should says so with `coarse`, and is asked
 *  once more in full when nothing moves any longer. */
export class Asker {
  #wanted = null;
  #busy = false;
  #timer = 0;
  #rows = 4096;
  #number = 0;
  #running = null; // stops the question that is on its way
  #since = 0; // when it was sent
  #late = 0; // the timer after which it is stopped for a newer one

  constructor({ question, ask, show, fail }) {
    Object.assign(this, { question, ask, show, fail });
    this.closed = false;
    this.sent = 0;
    this.answered = 0;
    this.stopped = 0;
  }

  /** True while an answer is on its way or a question waits. */
  get busy() {
    return this.#busy || this.#wanted !== null || this.#timer !== 0;
  }

  /** Something changed. `moving` says that more changes are to be expected at once. */
  changed({ moving = false } = {}) {
    this.#number++;
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#wanted = { moving };
    if (this.#busy) this.#replace(moving);
    else this.#next();
  }

  /** Nothing is asked any more, until something changes. */
  stop() {
    this.#wanted = null;
    clearTimeout(this.#timer);
    clearTimeout(this.#late);
    this.#timer = 0;
    this.#running?.abort();
  }

  close() {
    this.closed = true;
    this.stop();
  }

  /** Something newer waits: the question on its way is stopped if its answer does not come soon.
   *  While something moves it is not: slow answers would then never be seen before the end. */
  #replace(moving) {
    clearTimeout(this.#late);
    if (moving) return;
    const running = this.#running;
    const left = this.#since + SOON - performance.now();
    this.#late = setTimeout(() => running?.abort(), Math.max(0, left));
  }

  async #next() {
    if (this.#busy || !this.#wanted || this.closed) return;
    const { moving } = this.#wanted;
    this.#wanted = null;
    this.#busy = true;
    const number = this.#number;
    const running = new AbortController();
    this.#running = running;
    try {
      const question = this.question({ moving, rows: moving ? this.#rows : Infinity });
      if (question) {
        this.sent++;
        this.#since = performance.now();
        const answer = await this.ask(question.inputs, running.signal);
        const took = performance.now() - this.#since;
        this.answered++;
        if (moving) this.#learn(took, question);
        if (!this.closed) this.show(answer, { ...question, took });
        if (question.coarse && number === this.#number) this.#later();
      }
    } catch (error) {
      if (running.signal.aborted) this.stopped++;
      else if (!this.closed) this.fail(error);
    } finally {
      clearTimeout(this.#late);
      this.#running = null;
      this.#busy = false;
    }
    this.#next();
  }

  /** Ask in full when nothing has changed for a while. */
  #later() {
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#wanted = { moving: false };
      this.#next();
    }, REST);
  }

  /** Fewer rows where the answer was late, more where it was early. */
  #learn(took, { coarse }) {
    if (took > QUICK) this.#rows *= Math.max(0.5, QUICK / took);
    else if (coarse && took < QUICK / 2) this.#rows *= 1.5;
    this.#rows = Math.min(MOST, Math.max(FEWEST, Math.round(this.#rows)));
  }
}
