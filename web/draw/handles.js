// Points of a figure that can be taken and dragged, with a pointer or with the keys.

const REACH = 26; // pixels from a handle at which a pointer still takes it

/** Makes the handles of a figure draggable. `places()` are their places x0 y0 x1 y1 …;
 *  `drag(index, place)` says where one is wanted, `drop(index)` that it was let go, and `redraw()`
 *  that another one stands out. With the keys, space takes the handle that is nearest to the cross.
 *  A finger beside the handles scrolls the page. */
export class Handles {
  active = -1;
  #held = -1;
  #offset = [0, 0];

  constructor(figure, { places, drag, drop = () => {}, redraw, step }) {
    Object.assign(this, { figure, places });
    figure.pointing({
      step,
      scrolls: true,
      down: (place, event) => {
        const index = this.nearest(place, event ? REACH : Infinity);
        if (index < 0) return false;
        this.#held = index;
        const all = places();
        this.#offset = [all[2 * index] - place[0], all[2 * index + 1] - place[1]];
        this.#activate(index, redraw);
        return true;
      },
      move: (place) => {
        drag(this.#held, [place[0] + this.#offset[0], place[1] + this.#offset[1]]);
      },
      up: () => {
        const index = this.#held;
        this.#held = -1;
        this.#activate(-1, redraw);
        drop(index);
      },
      hover: (place) => {
        const index = place ? this.nearest(place, REACH) : -1;
        figure.canvas.style.cursor = index < 0 ? "default" : "grab";
        this.#activate(index, redraw);
      },
    });
    figure.canvas.style.cursor = "default";
  }

  /** The index of the handle that is nearest to a place, within so many pixels; -1 for none. */
  nearest(place, reach) {
    const { canvas, box } = this.figure;
    const perUnit = [
      canvas.clientWidth / (box[0][1] - box[0][0]),
      canvas.clientHeight / (box[1][1] - box[1][0]),
    ];
    const all = this.places();
    let found = -1;
    let least = reach;
    for (let k = 0; 2 * k < all.length; k++) {
      const far = Math.hypot(
        (all[2 * k] - place[0]) * perUnit[0],
        (all[2 * k + 1] - place[1]) * perUnit[1],
      );
      if (far < least) [least, found] = [far, k];
    }
    return found;
  }

  #activate(index, redraw) {
    if (index === this.active) return;
    this.active = index;
    redraw();
  }
}
