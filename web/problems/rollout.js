/** What every scene in time counts: frames of an answer, and their errors. */

/** |prediction - truth| / |truth| of each frame; the root of the sum of squares. */
export function relativeErrors(prediction, truth) {
  return prediction.slice(0, truth.length).map((frame, t) => {
    let difference = 0;
    let size = 0;
    for (let i = 0; i < frame.length; i++) {
      difference += (frame[i] - truth[t][i]) ** 2;
      size += truth[t][i] ** 2;
    }
    return Math.sqrt(difference / Math.max(size, Number.MIN_VALUE));
  });
}

/** prediction - truth. */
export function difference(prediction, truth) {
  return Float32Array.from(prediction, (x, i) => x - truth[i]);
}

/** Frames (T, M) of one channel, from numbers (T, M, channels) in one array. */
export function framesOf(numbers, [steps, places, channels], channel = 0) {
  return Array.from({ length: steps }, (_, t) => {
    const frame = new Float32Array(places);
    const from = t * places * channels + channel;
    for (let i = 0; i < places; i++) frame[i] = numbers[from + i * channels];
    return frame;
  });
}
