// Position features, LayerNorm and projection of points in one pass, on a CPU.
//
// A feature is sin(pi y) or cos(pi y) with y some times a coordinate. Taken in half turns, y loses
// nothing when whole turns are cut off. Features of a block of points live in the nearest cache.
// `ipot.native.project` calls these; `ipot.nn.fourier` and `ipot.nn.split` have the formulas.
#include "rows.h"

using namespace rows;

namespace {

constexpr float FAR = 4194304.0f;  // 2^22
constexpr long POINTS = 60;  // of a block: a whole number of the rows that a product takes at once

// The sine and cosine of pi times x.
inline void turn(Vec x, Vec& sine, Vec& cosine) {
  const Vec shift = all(12582912.0f);  // 1.5 * 2^23: added to a number it leaves the integer
  const Vec moved = x + shift;
  // So far away that all numbers are whole, nothing is left; of infinity, nothing that is a number.
  const Vec rest = (x > FAR) | (x < -FAR) ? x * 0.0f : x - (moved - shift), square = rest * rest;
  // Polynomials that are off by less than rounding, for half a half turn either way.
  Vec s = all(0.077657660f);
  s = s * square - 0.598291286f;
  s = s * square + 2.550077523f;
  s = s * square - 5.167710084f;
  s = s * square + 3.141592640f;
  Vec c = all(-0.024396324f);
  c = c * square + 0.234937314f;
  c = c * square - 1.335212003f;
  c = c * square + 4.058709160f;
  c = c * square - 4.934802137f;
  c = c * square + 1.0f;
  // An odd number of half turns changes the sign of both.
  const Bits sign = reinterpret_cast<Bits>(moved) << 31;
  sine = reinterpret_cast<Vec>(reinterpret_cast<Bits>(s * rest) ^ sign);
  cosine = reinterpret_cast<Vec>(reinterpret_cast<Bits>(c) ^ sign);
}

}  // namespace

extern "C" {

// matrix is (dimensions, phases) and maps coordinates, brought to the unit box by centre and
// radius, to half turns; raw names the coordinates that are features themselves.
struct Features {
  Rows points;
  const float *centre, *radius, *matrix;
  const int64_t* raw;
  long samples, count, dimensions, phases, raws;
  int threads;
};

// weight is (columns, features + values), with the norm's own in it.
struct Projection {
  Rows values;
  const float *weight, *offset;
  long value_width, columns;
  float epsilon;
};
}

namespace {

long width_of(const Features& f) { return f.raws + 2 * f.phases; }

void write_features(const Features& f, const float* point, float* to) {
  constexpr long MOST = 16;
  float x[MOST];
  for (long d = 0; d < f.dimensions; ++d) x[d] = (point[d] - f.centre[d]) / f.radius[d];
  for (long i = 0; i < f.raws; ++i) to[i] = x[f.raw[i]];
  float *sines = to + f.raws, *cosines = sines + f.phases;
  for (long k = 0; k < f.phases; k += LANES) {
    const long real = std::min<long>(LANES, f.phases - k);
    float rest[3][LANES] = {};
    Vec angle{}, sine, cosine;
    for (long d = 0; d < f.dimensions; ++d) {
      const float* row = f.matrix + d * f.phases + k;
      if (real < LANES) {
        std::copy_n(row, real, rest[0]);
        row = rest[0];
      }
      angle += all(x[d]) * load(row);
    }
    turn(angle, sine, cosine);
    if (real == LANES) {
      store(sines + k, sine);
      store(cosines + k, cosine);
    } else {
      store(rest[1], sine);
      store(rest[2], cosine);
      std::copy_n(rest[1], real, sines + k);
      std::copy_n(rest[2], real, cosines + k);
    }
  }
}

// A weight (columns, rows) as a product reads it: (rows, columns to whole vectors).
std::vector<float> turned(const float* weight, long rows, long columns) {
  const long wide = padded(columns, LANES);
  std::vector<float> packed(rows * wide);
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < columns; ++j) packed[i * wide + j] = weight[j * rows + i];
  return packed;
}

}  // namespace

// Features (samples, count, width).
extern "C" void ipot_features(const Features* given, float* out) {
  const Features f = *given;
#pragma omp parallel for num_threads(f.threads) schedule(static)
  for (long at = 0; at < f.samples * f.count; ++at)
    write_features(f, f.points.at(at / f.count, at % f.count, 0), out + at * width_of(f));
}

namespace {

// The sum of a row, and of its squares.
void add_row(const float* row, long width, float* totals) {
  Vec total{}, squares{};
  for (long j = 0; j < width; j += LANES) {
    const Vec x = load(row + j);
    total += x;
    squares += x * x;
  }
  totals[0] = sum(total);
  totals[1] = sum(squares);
}

// Products of features and values, (samples, count, columns): of normalised ones, with the offset
// added; or, where there are totals (samples, count, 2), as they are, and with these the sums of
// each row and of its squares.
void project(const Features& f, const Projection& p, float* out, float* totals) {
  const long width = width_of(f) + p.value_width, wide = padded(p.columns, LANES);
  const long row = padded(width, LANES);  // of a token, with zeros behind it
  const auto weight = turned(p.weight, width, p.columns);
  const long blocks = pieces(f.count, POINTS);
  Rooms<std::vector<float>> rooms(f.threads, std::vector<float>(POINTS * (row + wide)));
#pragma omp parallel num_threads(f.threads)
  {
    float *tokens = rooms.own().data(), *products = tokens + POINTS * row;
#pragma omp for schedule(static)
    for (long work = 0; work < f.samples * blocks; ++work) {
      const long b = work / blocks, first = work % blocks * POINTS;
      const long count = std::min(POINTS, f.count - first), at = b * f.count + first;
      for (long i = 0; i < count; ++i) {
        float* token = tokens + i * row;
        write_features(f, f.points.at(b, first + i, 0), token);
        if (p.value_width)
          std::copy_n(p.values.at(b, first + i, 0), p.value_width, token + width_of(f));
        if (totals)
          add_row(token, row, totals + 2 * (at + i));
        else
          normalise(token, width, p.epsilon);
      }
      for (long i = 0; i < count; ++i)
        if (p.offset)
          std::copy_n(p.offset, p.columns, products + i * wide);
        else
          std::fill_n(products + i * wide, p.columns, 0.0f);
      add_product(count, wide, width, {tokens, row, 1}, weight.data(), wide,
                  products, wide);
      for (long i = 0; i < count; ++i)
        std::copy_n(products + i * wide, p.columns, out + (at + i) * p.columns);
    }
  }
}

}  // namespace

// Returns 0, or 1 where there was not enough memory.
extern "C" int ipot_project(const Features* features, const Projection* projection, float* out,
                            float* totals) {
  return attempt([&] { project(*features, *projection, out, totals); });
}
