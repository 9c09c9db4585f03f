// What Python hands over, as `structures.py` has it.
#pragma once

#include "rows.h"

namespace rows {

// `mask`, if there is one, has a byte for each key of each sample, 0 where it is not real. Queries
// are those of one sample, which then serve all of them, or of each.
struct Problem {
  Rows query, key, value;
  const uint8_t* mask;
  long samples, query_samples, heads, queries, keys, width, value_width;
  float scale;
  int threads;
};

// query is (1, queries, heads * width); key and value are of one sample too. slope is
// (heads, extras, queries), factor (samples, keys), extra (samples, keys, extras).
struct Mesh {
  Rows query, key, value;
  const float *slope, *factor, *extra;
  long samples, heads, queries, keys, width, value_width, extras;
  float scale;
  int threads;
};

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

struct Layer {
  const float *weight, *bias;
  long inputs, outputs;
};

// A linear layer as torch has it: weight is (outputs, inputs), with its rows at any distance. Where
// there is a norm before it, `scale` and `shift` are the norm's own weights.
struct Linear {
  const float *weight, *bias, *scale, *shift;
  long row, inputs, outputs;
};

// Attention over keys and values linear(norm([features, channels])) of a mesh whose features all
// samples share. key and value are the products of the features alone, of one sample; sums, which
// are (keys, 2), are of the features and of their squares. The layer has keys and behind them
// values.
struct Tokens {
  Rows query, key, value, channels;
  const float* sums;
  Linear layer;
  long samples, heads, queries, keys, width, value_width, own;  // channels are each sample's own
  float scale, epsilon;
  int threads;
};

inline Shape asking(const Problem& p) { return {p.query_samples, p.heads, p.queries, p.width}; }
inline Shape asking(const Mesh& p) { return {1, p.heads, p.queries, p.width}; }

constexpr long SPLIT_UP_TO = 64;  // panels of queries up to which keys are shared out
constexpr long NARROW = 4;  // channels up to which values are multiplied one by one

// Keys of a piece of work forward, which leaves answers to its own keys: all, but for few queries.
inline long key_share(const Problem& p) {
  if (asking(p).panels() > SPLIT_UP_TO) return std::max(1L, p.keys);
  return share_of(p.keys, p.samples * p.queries * p.heads * (p.value_width + 1));
}

// Answers to several shares of the keys, made one; those of no real key at all are 0.
inline void join(const Problem& p, const std::vector<float>& outs, const std::vector<float>& logs,
          long shares, float* out, float* lse) {
  const long all = p.samples * p.queries * p.heads, width = p.value_width;
#pragma omp parallel for num_threads(p.threads) schedule(static)
  for (long at = 0; at < all; ++at) {
    const long head = at % p.heads, row = at / p.heads;
    const long place = (row / p.queries * p.heads + head) * p.queries + row % p.queries;
    float top = -INFINITY, total = 0.0f;
    for (long s = 0; s < shares; ++s) top = std::max(top, logs[s * all + place]);
    float* to = out + at * width;
    std::fill(to, to + width, 0.0f);
    for (long s = 0; s < shares; ++s) {
      const float log = logs[s * all + place];
      const float weight = log == -INFINITY ? 0.0f : std::exp(log - top);
      const float* from = outs.data() + (s * all + at) * width;
      for (long i = 0; i < width; ++i) to[i] += weight * from[i];
      total += weight;
    }
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    for (long i = 0; i < width; ++i) to[i] *= inverse;
    lse[place] = top + std::log(total);
  }
}

// Keys of a piece of work, which leaves a part of the gradients of queries.
inline long mesh_share(const Mesh& p) {
  return share_of(p.keys, p.samples * p.queries * p.heads * p.width);
}

inline long width_of(const Features& f) { return f.raws + 2 * f.phases; }

}  // namespace rows
