// Position features, LayerNorm and projection of points in one pass, on a CPU with products in
// bf16, as `project.cpp` has it in float32. Features, norms and sums are in float32.
#include "features.h"
#include "half_layers.h"

#if defined(IPOT_HALVES)

using namespace halves;

namespace {

constexpr long POINTS = 48;  // of a block: a whole number of the rows that a product takes at once

void project(const Features& f, Rows values, long value_width, const Layers& layers, long columns,
             float epsilon, float* out, float* totals) {
  const long width = width_of(f) + value_width, line = padded(width, LANES);
  const long wide = layers.outputs, row = layers.row(), blocks = pieces(f.count, POINTS);
  const Room<float> numbers(f.threads * (line + POINTS * wide));
  const Room<Pair> pairs(f.threads * POINTS * row);
#pragma omp parallel num_threads(f.threads)
  {
    const long thread = omp_get_thread_num();
    float* token = numbers.data() + thread * (line + POINTS * wide);
    float* products = token + line;
    Pair* rounded = pairs.data() + thread * POINTS * row;
    std::fill(token + width, token + line, 0.0f);
#pragma omp for schedule(static)
    for (long work = 0; work < f.samples * blocks; ++work) {
      const long b = work / blocks, first = work % blocks * POINTS;
      const long count = std::min(POINTS, f.count - first), at = b * f.count + first;
      for (long i = 0; i < count; ++i) {
        write_features(f, f.points.at(b, first + i, 0), token);
        if (value_width) std::copy_n(values.at(b, first + i, 0), value_width, token + width_of(f));
        if (totals)
          add_row(token, line, totals + 2 * (at + i));
        else
          normalise(token, width, epsilon);
        round_row(token, width, 1.0f, rounded + i * row);
      }
      float* to = wide == columns ? out + at * columns : products;
      layers.apply(rounded, count, to);
      if (to == products)
        for (long i = 0; i < count; ++i)
          std::copy_n(products + i * wide, columns, out + (at + i) * columns);
    }
  }
}

}  // namespace

// Products of features and values, (samples, count, outputs), as `ipot_project` leaves them; the
// layer has the norm's own weights beside it. Returns 0, or 1 where there was not enough memory.
extern "C" int ipot_half_project(const Features* features, const Rows* values, long value_width,
                                 const Linear* layer, float epsilon, float* out, float* totals) {
  return attempt([&] {
    project(*features, *values, value_width, Layers(*layer), layer->outputs, epsilon, out, totals);
  });
}

#endif
