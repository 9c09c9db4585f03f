// What is remarked on where inputs are unlike those of training, on a page that answers by itself: as
// ipot/surrogate/new_data.py does, by what the model's facts say of its training (`seen`).

import { shortNumber } from "../shell/numbers.js";

const MANY = 0.25; // the part of an input that may lie outside of what is usual
const NAMED = 3; // channels that a remark names
const NAMES = { values: ["inputs", "input_units"], parameters: ["parameters", "parameter_units"] };

/** Sentences about the inputs of a question: none where they are like those of training. */
export function remarksOn({ spec, seen }, given) {
  const said = [];
  for (const [column, [names, units]] of Object.entries(NAMES)) {
    const known = seen?.[column] ?? [];
    const numbers = given[column]?.data;
    if (!numbers?.length) continue;
    known.forEach((range, channel) => {
      const far = range && unlike(numbers, known.length, channel, range);
      if (!far) return;
      const unit = spec[units]?.[channel] ? ` ${spec[units][channel]}` : "";
      const [low, high] = far.ends.map(shortNumber);
      const [least, most] = (far.single ? range.all : range.usual).map(shortNumber);
      const nearly = far.single ? "" : "nearly all of it ";
      said.push(
        `${spec[names][channel]} (${column}) goes from ${low} to ${high}, in training ${nearly}from ` +
          `${least} to ${most}${unit}`,
      );
    });
  }
  if (!said.length) return [];
  const more = said.length > NAMED ? `; and ${said.length - NAMED} more` : "";
  const named = said.slice(0, NAMED).join("; ") + more;
  return [
    `inputs far outside of those that the model has seen: ${named}. The answer is an ` +
      "extrapolation, not to be trusted; check the units.",
  ];
}

function unlike(numbers, channels, channel, { single, many }) {
  let low = Infinity;
  let high = -Infinity;
  let outside = 0;
  let count = 0;
  for (let k = channel; k < numbers.length; k += channels, count++) {
    const value = Number(numbers[k]);
    if (value < low) low = value;
    if (value > high) high = value;
    if (value < many[0] || value > many[1]) outside++;
  }
  const ends = [low, high];
  if (low < single[0] || high > single[1]) return { ends, single: true };
  return outside > MANY * count ? { ends, single: false } : null;
}
