// Position features, LayerNorm and projection of points in one pass, on a CPU.
//
// A feature is sin(pi y) or cos(pi y) with y some times a coordinate. Taken in half turns, y loses
// nothing when whole turns are cut off. Features of a block of points live in the nearest cache.
// `ipot.accelerate.cpu.project` calls these; `ipot.nn.points` and `ipot.accelerate.shared_mesh`
// have the formulas.
#include "features.h"

using namespace rows;

namespace {

constexpr long POINTS = 60;  // of a block: a whole number of the rows that a product takes at once

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
