// A figure: a canvas over a box of coordinates, with a title, a colour bar and a readout, that may
// be drawn on with a pointer or with the keys.

import { element } from "../shell/elements.js";
import { shortNumber, ticksOf } from "../shell/numbers.js";
import { gridPixels, meshPixels } from "./raster.js";

const NARROW = 260; // pixels of a figure that has room for few numbers below its colours

/** What paints one picture, in the coordinates of the data: x to the right, y upwards. */
class Painter {
  constructor(context, box, width, height, ratio, colours) {
    Object.assign(this, { context, box, width, height, ratio, colours });
  }

  x(x) {
    const [low, high] = this.box[0];
    return ((x - low) / (high - low)) * this.width;
  }

  y(y) {
    const [low, high] = this.box[1];
    return (1 - (y - low) / (high - low)) * this.height;
  }

  /** Values on a grid over a box (the whole figure unless said): the cell of every value has one
   *  colour, so that the resolution is seen. `smooth` blends neighbours. */
  field({ values, shape, scale, box = this.box, smooth = false }) {
    const { pixels, width, height } = gridPixels(values, shape, scale);
    const [left, right] = [this.x(box[0][0]), this.x(box[0][1])];
    const [bottom, top] = [this.y(box[1][0]), this.y(box[1][1])];
    this.#put(pixels, width, height, left, top, right - left, bottom - top, smooth);
  }

  /** Values at the nodes of triangles: `points` x0 y0 x1 y1 …, `triangles` three nodes each. */
  mesh({ points, triangles, values, scale }) {
    const width = Math.round(this.width * this.ratio);
    const height = Math.round(this.height * this.ratio);
    const places = new Float64Array(points.length);
    for (let k = 0; k < points.length; k += 2) {
      places[k] = this.x(points[k]) * this.ratio;
      places[k + 1] = this.y(points[k + 1]) * this.ratio;
    }
    const { pixels } = meshPixels(places, triangles, values, scale, width, height);
    this.#put(pixels, width, height, 0, 0, this.width, this.height, false);
  }

  /** Dots at points x0 y0 x1 y1 …, in the colours of their values or all in one; `radius` is one for
   *  all or one for each, and `outline` may be a colour. */
  scatter({ points, values, scale, colour = this.colours.ink, radius = 3, outline = false }) {
    const { context } = this;
    for (let k = 0; 2 * k + 1 < points.length; k++) {
      if (values && values[k] !== values[k]) continue;
      context.beginPath();
      const size = radius[k] ?? radius;
      context.arc(this.x(points[2 * k]), this.y(points[2 * k + 1]), size, 0, 2 * Math.PI);
      context.fillStyle = values ? scale.css(values[k]) : colour;
      context.fill();
      if (outline) {
        context.lineWidth = 1;
        context.strokeStyle = outline === true ? this.colours.paper : outline;
        context.stroke();
      }
    }
  }

  /** A line through points x0 y0 x1 y1 …; `fill` fills what it encloses. */
  line({ points, colour = this.colours.ink, width = 1.5, closed = false, fill = null, dash = [] }) {
    const { context } = this;
    context.beginPath();
    for (let k = 0; k + 1 < points.length; k += 2) {
      context.lineTo(this.x(points[k]), this.y(points[k + 1]));
    }
    if (closed) context.closePath();
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    context.setLineDash(dash);
    context.lineWidth = width;
    context.strokeStyle = colour;
    context.stroke();
    context.setLineDash([]);
  }

  /** Pieces of lines, each from one point to another: x0 y0 x1 y1, the next … */
  segments({ points, colour = this.colours.ink, width = 1 }) {
    const { context } = this;
    context.beginPath();
    for (let k = 0; k + 3 < points.length; k += 4) {
      context.moveTo(this.x(points[k]), this.y(points[k + 1]));
      context.lineTo(this.x(points[k + 2]), this.y(points[k + 3]));
    }
    context.lineWidth = width;
    context.strokeStyle = colour;
    context.stroke();
  }

  /** Rings that may be taken and dragged; `active` is the index of the one that is. */
  handles({ points, active = -1 }) {
    const { context } = this;
    for (let k = 0; 2 * k + 1 < points.length; k++) {
      context.beginPath();
      context.arc(this.x(points[2 * k]), this.y(points[2 * k + 1]), 7, 0, 2 * Math.PI);
      context.fillStyle = k === active ? this.colours.accent : this.colours.paper;
      context.fill();
      context.lineWidth = 2;
      context.strokeStyle = k === active ? this.colours.paper : this.colours.accent;
      context.stroke();
    }
  }

  /** A ring around a place, as wide as a brush. */
  ring({ point, radius }) {
    const { context } = this;
    const across = Math.abs(this.x(radius) - this.x(0));
    for (const [colour, width] of [[this.colours.paper, 3], [this.colours.ink, 1.25]]) {
      context.beginPath();
      context.arc(this.x(point[0]), this.y(point[1]), across, 0, 2 * Math.PI);
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke();
    }
  }

  /** A square picture of pixels as the disc of radius one around the origin, over `ground`. */
  disc({ pixels, size, ground }) {
    const { context } = this;
    const [left, top] = [this.x(-1), this.y(1)];
    const across = this.x(1) - left;
    context.save();
    context.beginPath();
    context.arc(this.x(0), this.y(0), across / 2, 0, 2 * Math.PI);
    context.fillStyle = ground;
    context.fill();
    context.clip();
    this.#put(pixels, size, size, left, top, across, across, true);
    context.restore();
  }

  #put(pixels, width, height, left, top, wide, high, smooth) {
    const image = document.createElement("canvas");
    [image.width, image.height] = [width, height];
    image.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
    this.context.imageSmoothingEnabled = smooth;
    this.context.drawImage(image, left, top, wide, high);
  }
}

/** A figure of the page. `room.figure` makes them.
 *
 *  - `show(draw, scale)`: from now on it shows what `draw(painter)` paints, and the bar of `scale`.
 *  - `pointing({down, move, up, hover, step})`: each is called with a place [x, y] in the data. With
 *    the keys, arrows move a cross by `step`, and space or enter holds and lets go. `down` may
 *    answer `false`: then the stroke is not taken, and with `scrolls` a finger moves the page.
 *    `arrow([right, up])` may use an arrow for something else, and then answers `true`.
 *  - `axes({ x, y })`: lines at some numbers of each axis, and the numbers beside the picture.
 *  - `keys([[text, colour, dash], ...])`: what the lines of a chart are; colours are names of the theme.
 *  - `reading(value)`: `value([x, y])` is the text of what is there, which is shown below.
 *  - `caption(text)`: the line below.
 *
 *  `large` has the whole width of a narrow page, `wide` of any; `aspect` is its width over its height
 *  where that is not the box's own. */
export class Figure {
  #draw = () => {};
  #scale = null;
  #few = null; // whether the bar has few numbers; null before it has any
  #cursor = null;
  #holding = false;
  #box;
  #reading = null;
  #axes = null;
  #marks = element("div", { class: "marks" });

  constructor({
    title,
    box = [[0, 1], [0, 1]],
    label = title,
    large = false,
    wide = false,
    aspect = null,
  }) {
    this.#box = box;
    this.aspect = aspect;
    this.canvas = element("canvas", { role: "img", "aria-label": label, tabindex: 0 });
    this.title = element("figcaption", {}, title);
    this.bar = element("div", { class: "bar", hidden: true });
    this.note = element("p", { class: "caption" });
    this.few = element("p", { class: "few", hidden: true });
    this.legend = element("p", { class: "keys", hidden: true });
    this.frame = element("div", { class: "frame" }, this.canvas);
    const parts = [this.title, this.frame, this.bar, this.legend, this.note, this.few];
    const kind = wide ? "wide" : large && "large";
    this.element = element("figure", { class: kind }, ...parts);
    this.box = box;
    this.canvas.addEventListener("pointermove", (event) => this.#read(this.#place(event)));
    this.canvas.addEventListener("pointerleave", () => this.#read(null));
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    addEventListener("ipot-theme", () => this.element.isConnected && this.redraw());
  }

  get box() {
    return this.#box;
  }

  set box(box) {
    this.#box = box;
    const [wide, high] = box.map(([low, top]) => top - low);
    const aspect = this.aspect ?? wide / high;
    this.canvas.style.aspectRatio = String(aspect);
    this.element.style.setProperty("--aspect", String(aspect));
  }

  show(draw, scale = null) {
    this.#draw = draw;
    if (scale !== this.#scale) this.#showBar(scale);
    this.redraw();
  }

  caption(text) {
    this.note.textContent = text;
  }

  /** A line that says how much of what there is is drawn; empty where that is all. */
  partial(text) {
    this.few.hidden = !text;
    this.few.textContent = text;
  }

  reading(value) {
    this.#reading = value;
  }

  axes({ x = [], y = [] }) {
    this.#axes = { x, y };
    this.frame.classList.add("measured");
    if (!this.#marks.isConnected) this.frame.append(this.#marks);
    const mark = (axis, side, value) => {
      const [low, high] = this.#box[axis];
      const text = element("span", { class: side, "aria-hidden": "true" }, shortNumber(value));
      text.style[side] = `${(100 * (value - low)) / (high - low)}%`;
      return text;
    };
    this.#marks.replaceChildren(
      ...x.map((value) => mark(0, "left", value)),
      ...y.map((value) => mark(1, "bottom", value)),
    );
  }

  keys(lines) {
    this.legend.hidden = !lines.length;
    this.legend.replaceChildren(
      ...lines.map(([text, colour, dash = "solid"]) => {
        const sign = element("i", {});
        sign.style.borderTopColor = `var(--${colour})`;
        sign.style.borderTopStyle = dash;
        return element("span", {}, sign, text);
      }),
    );
  }

  redraw() {
    const { canvas } = this;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    this.#markBar();
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const size = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) {
      [canvas.width, canvas.height] = size;
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const painter = new Painter(context, this.#box, width, height, ratio, themeColours());
    this.#drawAxes(painter);
    this.#draw(painter);
    if (this.#cursor) this.#cross(painter);
  }

  pointing({
    down = () => {},
    move = () => {},
    up = () => {},
    hover = () => {},
    arrow = () => false,
    step = 0.02,
    scrolls = false,
  }) {
    const { canvas } = this;
    canvas.classList.add(scrolls ? "handled" : "touched");
    canvas.setAttribute("role", "application");
    let held = false;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || down(this.#place(event), event) === false) return;
      held = true;
      canvas.setPointerCapture(event.pointerId);
      event.preventDefault();
      canvas.focus({ preventScroll: true });
      this.#cursor = null;
    });
    // Comes behind pointerdown: what is not taken scrolls the page, where a figure allows that.
    canvas.addEventListener("touchstart", (event) => held && event.preventDefault(), {
      passive: false,
    });
    canvas.addEventListener("pointermove", (event) => {
      const all = held && event.getCoalescedEvents ? event.getCoalescedEvents() : [];
      for (const one of all.length ? all : [event]) {
        (held ? move : hover)(this.#place(one), event);
      }
    });
    const end = (event) => {
      if (held) up(this.#place(event), event);
      held = false;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", (event) => held || hover(null, event));
    canvas.addEventListener("keydown", (event) => this.#key(event, { down, move, up, arrow, step }));
    canvas.addEventListener("blur", () => {
      if (this.#holding) up(this.#cursor);
      this.#holding = false;
      this.#cursor = null;
      this.redraw();
    });
  }

  #key(event, { down, move, up, arrow, step }) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const centre = this.#box.map(([low, high]) => (low + high) / 2);
    if (event.key in moves && !this.#holding && arrow(moves[event.key])) {
      this.#cursor = null;
    } else if (event.key in moves) {
      const far = event.shiftKey ? 5 * step : step;
      this.#cursor = (this.#cursor ?? centre).map((x, axis) => {
        const [low, high] = this.#box[axis];
        return Math.min(high, Math.max(low, x + far * moves[event.key][axis]));
      });
      if (this.#holding) move(this.#cursor);
      this.#read(this.#cursor);
    } else if (event.key === " " || event.key === "Enter") {
      this.#cursor ??= centre;
      if (this.#holding) up(this.#cursor);
      else if (down(this.#cursor) === false) return;
      this.#holding = !this.#holding;
    } else return;
    event.preventDefault();
    this.redraw();
  }

  #place(event) {
    const area = this.canvas.getBoundingClientRect();
    const [across, down] = [
      (event.clientX - area.left) / area.width,
      (event.clientY - area.top) / area.height,
    ];
    const [[left, right], [bottom, top]] = this.#box;
    return [left + across * (right - left), top + down * (bottom - top)];
  }

  #read(place) {
    const text = place && this.#reading ? this.#reading(place) : "";
    this.title.dataset.reading = text ?? "";
  }

  #cross(painter) {
    const { context } = painter;
    const [across, down] = [painter.x(this.#cursor[0]), painter.y(this.#cursor[1])];
    context.lineWidth = 2;
    context.strokeStyle = this.#holding ? painter.colours.accent : painter.colours.ink;
    context.beginPath();
    context.moveTo(across - 9, down);
    context.lineTo(across + 9, down);
    context.moveTo(across, down - 9);
    context.lineTo(across, down + 9);
    context.stroke();
  }

  #drawAxes(painter) {
    if (!this.#axes) return;
    const [[left, right], [bottom, top]] = this.#box;
    const colour = painter.colours.faint;
    for (const x of this.#axes.x) painter.line({ points: [x, bottom, x, top], width: 1, colour });
    for (const y of this.#axes.y) painter.line({ points: [left, y, right, y], width: 1, colour });
  }

  #showBar(scale) {
    this.#scale = scale;
    this.#few = null;
    this.bar.hidden = !scale;
    if (!scale) return;
    const colours = [];
    const span = scale.high - scale.low;
    for (let k = 0; k <= 16; k++) colours.push(scale.css(scale.low + (k / 16) * span));
    const stripe = element("div", { class: "stripe" });
    stripe.style.backgroundImage = `linear-gradient(to right, ${colours.join(", ")})`;
    this.bar.replaceChildren(element("div", { class: "measure" }, stripe), element("span", { class: "unit" }));
  }

  /** Round numbers below the stripe, as many as there is room for, and the unit behind it. */
  #markBar() {
    const scale = this.#scale;
    const few = this.canvas.clientWidth < NARROW;
    if (!scale || few === this.#few) return;
    this.#few = few;
    const { values, texts, common } = ticksOf(scale.low, scale.high, { few });
    const marks = values.map((value, k) => {
      const share = (value - scale.low) / (scale.high - scale.low);
      // What would reach beyond the stripe ends with it.
      const place = share < 0.04 ? "tick first" : share > 0.96 ? "tick last" : "tick";
      const mark = element("span", { class: place, "data-value": value }, texts[k]);
      mark.style.left = `${100 * share}%`;
      return mark;
    });
    const [measure, unit] = this.bar.children;
    measure.replaceChildren(measure.firstChild, ...marks);
    unit.textContent = `${common} ${scale.unit}`.trim();
  }
}

/** The colours of the theme, for what is drawn and not styled. */
function themeColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    ink: of("--ink"),
    paper: of("--paper"),
    panel: of("--panel"),
    accent: of("--accent"),
    warm: of("--warm"),
    soft: of("--soft"),
    faint: of("--line"),
  };
}
