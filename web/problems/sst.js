/**
 * Weeks of sea-surface temperature: the seasonal cycle, anomalies, what is known at sensors, and
 * forecasts in kelvin. The arithmetic is that of `ipot/problems/sst.py` and
 * `ipot/data/climatology.py`.
 */

const YEAR = 365.25;
const ORIGIN = Date.UTC(1990, 0, 1);
const DAY = 86_400_000;

/** The season of a day (milliseconds, UTC) as an angle: 2π in a year, zero as 1990 begins. */
export function phase(day) {
  return (2 * Math.PI * Math.floor((day - ORIGIN) / DAY)) / YEAR;
}

/** One, and cosine and sine of the season's first multiples. */
export function harmonics(day, count) {
  const angle = phase(day);
  const waves = [1];
  for (let k = 1; k <= count; k++) waves.push(Math.cos(k * angle), Math.sin(k * angle));
  return waves;
}

/**
 * The record of some weeks. `facts` are the arrays of the scene's file:
 * temperature (weeks, points) in hundredths of a degree as Int16Array, latitude and longitude in
 * degrees, cycle (waves, points), damping (leads, points), and `start`, the first week's day in
 * days since 1990.
 */
export class Weeks {
  constructor({ temperature, latitude, longitude, cycle, damping, start }) {
    Object.assign(this, { temperature, latitude, longitude, coefficients: cycle, shares: damping });
    this.points = latitude.length;
    this.count = temperature.length / this.points;
    this.leads = damping.length / this.points;
    this.start = ORIGIN + DAY * start;
    this.vectors = new Float32Array(3 * this.points);
    for (let i = 0; i < this.points; i++) {
      const north = (latitude[i] * Math.PI) / 180;
      const east = (longitude[i] * Math.PI) / 180;
      const ring = Math.cos(north);
      this.vectors.set([ring * Math.cos(east), ring * Math.sin(east), Math.sin(north)], 3 * i);
    }
  }

  /** The middle day of a week, in milliseconds. */
  day(week) {
    return this.start + 7 * DAY * week;
  }

  /** YYYY-MM-DD. */
  date(week) {
    return new Date(this.day(week)).toISOString().slice(0, 10);
  }

  /** Temperatures in degrees Celsius. */
  temperatures(week) {
    const from = week * this.points;
    return Float32Array.from({ length: this.points }, (_, i) => this.temperature[from + i] / 100);
  }

  /** What the season alone says. */
  cycle(week) {
    const waves = harmonics(this.day(week), (this.coefficients.length / this.points - 1) / 2);
    const cycle = new Float64Array(this.points);
    waves.forEach((wave, k) => {
      for (let i = 0; i < this.points; i++) {
        cycle[i] += wave * this.coefficients[k * this.points + i];
      }
    });
    return cycle;
  }

  /** What is left of the temperatures. */
  anomaly(week) {
    const now = this.temperatures(week);
    const cycle = this.cycle(week);
    return Float64Array.from(now, (t, i) => t - cycle[i]);
  }

  /** The share of an anomaly that is there some weeks later, on average. */
  damping(lead) {
    return this.shares.subarray((lead - 1) * this.points, lead * this.points);
  }
}

/**
 * The inputs of a forecast whose first week is `first`, from the sensors that are kept:
 * points (N, 3), values (N, history) and the season as parameters.
 */
export function forecastInputs(weeks, first, history, kept, past = "anomaly") {
  const rows = keptRows(kept);
  const points = new Float32Array(3 * rows.length);
  rows.forEach((row, k) => points.set(weeks.vectors.subarray(3 * row, 3 * row + 3), 3 * k));
  const values = new Float32Array(history * rows.length);
  for (let back = 0; back < history; back++) {
    const week = first - history + back;
    const frame = past === "temperature" ? weeks.temperatures(week) : weeks.anomaly(week);
    rows.forEach((row, k) => (values[k * history + back] = frame[row]));
  }
  const season = phase(weeks.day(first - 1));
  return { points, values, parameters: Float32Array.of(Math.cos(season), Math.sin(season)) };
}

/** The rows of the points that are kept. */
export function keptRows(kept) {
  const rows = [];
  kept.forEach((yes, row) => yes && rows.push(row));
  return rows;
}

/**
 * The last anomaly everywhere, as far as the kept sensors tell. At a kept sensor it is what the
 * sensor says; elsewhere the mean of the others, near ones counting more (a bell of `length`
 * radians); zero where none is left within reach.
 */
export function spreadAnomaly(weeks, anomaly, kept, length = 0.15) {
  const rows = keptRows(kept);
  const { vectors } = weeks;
  const spread = new Float64Array(weeks.points);
  for (let i = 0; i < weeks.points; i++) {
    if (kept[i]) {
      spread[i] = anomaly[i];
      continue;
    }
    // One in 150 stands for "nothing is known" and draws to zero what is far from every sensor.
    let total = 1 / 150;
    let sum = 0;
    for (const row of rows) {
      const square =
        (vectors[3 * i] - vectors[3 * row]) ** 2 +
        (vectors[3 * i + 1] - vectors[3 * row + 1]) ** 2 +
        (vectors[3 * i + 2] - vectors[3 * row + 2]) ** 2;
      const weight = Math.exp(-square / (2 * length * length));
      total += weight;
      sum += weight * anomaly[row];
    }
    spread[i] = sum / total;
  }
  return spread;
}

/**
 * Temperatures of every lead from what the model answers, (leads, points) as arrays.
 * `kind` is what the model was trained to answer: "departure" from damped persistence, "anomaly"
 * or "temperature". `last` is the last anomaly as far as it is known.
 */
export function forecastTemperatures(weeks, first, kind, answer, last) {
  return answer.map((frame, index) => {
    if (kind === "temperature") return Float32Array.from(frame);
    const cycle = weeks.cycle(first + index);
    const share = kind === "departure" ? weeks.damping(index + 1) : null;
    return Float32Array.from(frame, (x, i) => cycle[i] + x + (share ? share[i] * last[i] : 0));
  });
}

/**
 * Simple forecasts in temperature for a number of leads, from the last anomaly as far as it is
 * known: persistence (the last temperature), damped persistence, and the season alone.
 */
export function simpleForecasts(weeks, first, leads, last) {
  const before = weeks.cycle(first - 1);
  const forecasts = { persistence: [], damped: [], season: [] };
  for (let lead = 1; lead <= leads; lead++) {
    const cycle = weeks.cycle(first + lead - 1);
    const share = weeks.damping(lead);
    forecasts.persistence.push(Float32Array.from(before, (c, i) => c + last[i]));
    forecasts.damped.push(Float32Array.from(cycle, (c, i) => c + share[i] * last[i]));
    forecasts.season.push(Float32Array.from(cycle));
  }
  return forecasts;
}

/** The root of the mean square of a difference, each point counting by its area. */
export function kelvin(weeks, forecast, truth) {
  let sum = 0;
  let area = 0;
  for (let i = 0; i < weeks.points; i++) {
    const weight = Math.cos((weeks.latitude[i] * Math.PI) / 180);
    sum += weight * (forecast[i] - truth[i]) ** 2;
    area += weight;
  }
  return Math.sqrt(sum / area);
}

/** Parts of the ocean that sensors can be removed from, by degrees north and east (0 to 360). */
export const REGIONS = {
  "North of the equator": (north) => north >= 0,
  "South of the equator": (north) => north < 0,
  Tropics: (north) => Math.abs(north) < 20,
  Atlantic: (north, east) => basin(north, east) === "Atlantic",
  Pacific: (north, east) => basin(north, east) === "Pacific",
  "Indian Ocean": (north, east) => basin(north, east) === "Indian Ocean",
  "Southern Ocean": (north) => north < -40,
};

/** The basin of an ocean point; the coasts between basins are drawn with a few straight lines. */
export function basin(north, east) {
  if (east >= 20 && east < 147 && north < 30 && east < indianEnd(north)) return "Indian Ocean";
  return east >= 100 && east < pacificEnd(north) ? "Pacific" : "Atlantic";
}

function indianEnd(north) {
  if (north < -10) return 147; // Tasmania
  return north < 0 ? 120 : 100; // the Sunda islands, the Malay peninsula
}

function pacificEnd(north) {
  if (north < 8) return 290; // the Andes, Cape Horn
  if (north < 10) return 277;
  if (north < 15) return 275; // Nicaragua
  return north < 18 ? 265 : 260; // the isthmus of Tehuantepec, and north of it
}

/** Which points are inside of a region of `REGIONS`. */
export function inRegion(weeks, name) {
  const inside = REGIONS[name];
  return Array.from(weeks.latitude, (north, i) => inside(north, (weeks.longitude[i] + 360) % 360));
}

/** Which points lie within `radius` radians of a place given as a unit vector. */
export function withinReach(weeks, [x, y, z], radius) {
  const chord = (2 * Math.sin(radius / 2)) ** 2;
  const { vectors } = weeks;
  return Array.from(
    { length: weeks.points },
    (_, i) =>
      (vectors[3 * i] - x) ** 2 + (vectors[3 * i + 1] - y) ** 2 + (vectors[3 * i + 2] - z) ** 2 <=
      chord,
  );
}
