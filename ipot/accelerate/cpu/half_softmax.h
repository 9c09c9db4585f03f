// What attention in bf16 shares: queries, keys and values in pairs, and the running softmax.
//
// Scores stand queries by keys, so that a block of keys fills vectors and weights lie in pairs as
// the next product wants them.
//
// Scores are counted in steps, 128 of which double a weight, from a measure of each query on. So a
// score as a whole number is, but for the last seven bits, a weight in bf16: a bias gives it the
// exponent, and a table makes the mantissa of these seven. The measure is not the largest score but
// any that is not far from it: it changes when a score exceeds it by far, seldom after the first
// block. All this is for numbers of usual size; the caller leaves others to the kernels in float32.
#pragma once

#include "halves.h"

#if defined(IPOT_HALVES)

namespace halves {

constexpr int BLOCK = 4;              // vectors of keys that are scored at once
constexpr long WIDE = BLOCK * LANES;  // the keys in them
constexpr long QUERIES = 48;          // of a piece of work: a whole number of rows of a product
constexpr float STEPS = 128.0f;       // that double a weight
constexpr float BIAS = 127 * STEPS;   // the steps of a weight of 1
constexpr float REACH = 16 * STEPS;   // that a score may be from the measure

static_assert(QUERIES % LANES == 0, "measures fill whole vectors");
static_assert(WIDE == PANEL, "a share of keys is a whole number of blocks");

inline long blocks_of(long count) { return (count + WIDE - 1) / WIDE; }

// Where a key of a block stands among its columns: in such an order that the numbers of two
// vectors, packed into one, are in that of the keys.
inline long column(long j) { return j / 32 * 32 + j % 8 / 4 * LANES + j % 32 / 8 * 4 + j % 4; }

// Whether all numbers of a row are of usual size.
inline bool usual(const float* row, long width) {
  unsigned found = 0;
  for (long i = 0; i < width; i += LANES) found |= unusual(load_some(row + i, width - i));
  return found == 0;
}

// Queries of all samples and heads in pairs, times a factor: (samples, heads, count, row).
struct Queries {
  long row, count, heads;
  Room<Pair> data;
  bool usual = true;

  Queries(Rows from, Shape shape, float factor, int threads)
      : row(padded(pairs_of(shape.width), LANES)),
        count(shape.count),
        heads(shape.heads),
        data(shape.samples * shape.heads * shape.count * row) {
    bool fine = true;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : fine)
    for (long work = 0; work < shape.samples * heads * blocks_of(count); ++work) {
      const long first = work % blocks_of(count) * WIDE, end = std::min(count, first + WIDE);
      const long at = work / blocks_of(count), head = at % heads, b = at / heads;
      for (long m = first; m < end; ++m) {
        const float* query = from.at(b, m, head * shape.width);
        fine &= round_row(query, shape.width, factor, data.data() + (at * count + m) * row);
      }
    }
    usual = fine;
  }

  const Pair* at(long b, long head, long m) const {
    return data.data() + ((b * heads + head) * count + m) * row;
  }
};

// Keys by blocks, each transposed: (samples, heads, blocks, pairs, WIDE). In the place of those
// that a mask hides, and after the last, stands a real one of the block, if there is one: what
// is as large as another is never the largest.
struct Keys {
  long depth, blocks, heads;
  Room<Pair> data;
  bool usual = true;

  Keys(Rows from, Shape shape, const uint8_t* mask, int threads)
      : depth(pairs_of(shape.width)),
        blocks(blocks_of(shape.count)),
        heads(shape.heads),
        data(shape.samples * shape.heads * blocks * depth * WIDE) {
    bool fine = true;
    const long row = padded(depth, LANES);
    const Room<Pair> rooms(threads * row);
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : fine)
    for (long work = 0; work < shape.samples * heads * blocks; ++work) {
      Pair* one = rooms.data() + omp_get_thread_num() * row;
      Pair* to = data.data() + work * depth * WIDE;
      const long head = work / blocks % heads, b = work / blocks / heads;
      const long first = work % blocks * WIDE, end = std::min(shape.count, first + WIDE);
      auto real = [&](long n) { return n < end && !(mask && !mask[b * shape.count + n]); };
      long some = first;
      while (some < end && !real(some)) ++some;
      if (some == end) continue;
      for (long j = 0; j < WIDE; ++j) {
        const long n = real(first + j) ? first + j : some;
        const float* key = from.at(b, n, head * shape.width);
        fine &= round_row(key, shape.width, 1.0f, one);
        for (long i = 0; i < depth; ++i) to[i * WIDE + column(j)] = one[i];
      }
    }
    usual = fine;
  }

  const Pair* block(long b, long head, long n) const {
    return data.data() + ((b * heads + head) * blocks + n / WIDE) * depth * WIDE;
  }
};

// Values, two rows woven into one: (samples, heads, blocks * WIDE / 2, row). Behind them, and where
// a mask hides them, are zeros. A row is whole vectors, or half of one.
struct Values {
  long row, blocks, heads;
  Room<Pair> data;
  bool usual = true;

  Values(Rows from, Shape shape, const uint8_t* mask, int threads)
      : row(shape.width > HALF ? padded(shape.width, LANES) : HALF),
        blocks(blocks_of(shape.count)),
        heads(shape.heads),
        data(shape.samples * shape.heads * blocks * WIDE / 2 * row) {
    bool fine = true;
    const std::vector<float> none(shape.width);
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : fine)
    for (long work = 0; work < shape.samples * heads * blocks; ++work) {
      const long head = work / blocks % heads, b = work / blocks / heads;
      const long first = work % blocks * WIDE, end = std::min(shape.count, first + WIDE);
      auto value = [&](long n) {
        const bool real = n < end && !(mask && !mask[b * shape.count + n]);
        return real ? from.at(b, n, head * shape.width) : none.data();
      };
      for (long n = first; n < end; n += 2) {
        Pair* to = data.data() + (work * WIDE + n - first) / 2 * row;
        fine &= weave(value(n), value(n + 1), shape.width, row, to);
      }
    }
    usual = fine;
  }

  const Pair* block(long b, long head, long n) const {
    return data.data() + ((b * heads + head) * blocks * WIDE + n) / 2 * row;
  }
};

// The keys of a block that are real.
struct Real {
  __mmask32 keys[BLOCK / 2];

  Real(const uint8_t* mask, long seen) {
    for (int v = 0; v < BLOCK / 2; ++v) {
      const long left = seen - v * 32;
      keys[v] = left >= 32 ? ~0u : left <= 0 ? 0u : (1u << left) - 1;
      if (mask)
        keys[v] = _mm256_mask_test_epi8_mask(
            keys[v], _mm256_maskz_loadu_epi8(keys[v], mask + v * 32), _mm256_set1_epi8(-1));
    }
  }

  bool any() const { return keys[0] | keys[1]; }
};

static_assert(BLOCK == 4, "two times 32 keys");

typedef __m512i Weights[BLOCK / 2];  // of the keys of a block in their order, in bf16

// The numbers that weights are multiplied by, in two vectors for what is summed unrounded: the
// second has what rounding takes from the first.
inline void split(const float* from, long count, Pair* high, Pair* low) {
  for (long i = 0; i < count; i += 2 * LANES) {
    const Vec a = load_some(from + i, count - i);
    const Vec b = count - i > LANES ? load_some(from + i + LANES, count - i - LANES) : Vec{};
    const __m512i both = rounded(a, b);
    const auto half = [&](int k) -> Vec {
      const __m256i part = k ? _mm512_extracti64x4_epi64(both, 1) : _mm512_castsi512_si256(both);
      return reinterpret_cast<Vec>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(part), 16));
    };
    _mm512_storeu_si512(high + i / 2, both);
    _mm512_storeu_si512(low + i / 2, rounded(a - half(0), b - half(1)));
  }
}

// The sums over a block of weights times split numbers, which begin there, added to lanes.
IPOT_INLINE Vec add_split(Vec sums, const Weights& weights, const Pair* high, const Pair* low) {
  Vec parts[BLOCK / 2] = {sums};  // none of which waits for another
  for (const Pair* numbers : {high, low})
#pragma GCC unroll 8
    for (int v = 0; v < BLOCK / 2; ++v)
      parts[v] = _mm512_dpbf16_ps(
          parts[v], reinterpret_cast<__m512bh>(weights[v]),
          reinterpret_cast<__m512bh>(_mm512_loadu_si512(numbers + v * LANES)));
  return parts[0] + parts[1];
}

// The logarithm of a positive number to the base of 2, off by 2e-5 at most.
inline Vec short_log2(Vec x) {
  const Vec rest = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src) - 1.0f;
  Vec value = all(1.901165185e-1f);
  value = value * rest - 3.714230166e-1f;
  value = value * rest + 4.909735534e-1f;
  value = value * rest - 7.214826441e-1f;
  value = value * rest + 1.442494807f;
  // The mantissa was taken from 3/4 on, and so is the exponent.
  return value * rest + _mm512_getexp_ps(x * 4.0f / 3.0f);
}

// Mantissas of 2 to the power of 0, 1/128, ..., 127/128.
struct Table {
  alignas(64) uint8_t numbers[128];

  Table() {
    for (int i = 0; i < 128; ++i)
      numbers[i] = static_cast<uint8_t>(std::lround(128.0 * (std::exp2(i / 128.0) - 1.0)));
  }
};

// Answers so far of some queries: their measures less the bias, and for each `size` sums of what is
// weighted, the first LANES of which are of the weights themselves.
struct Softmax {
  float *measure, *sums;
  long size;
  const Table& table;

  Softmax(float* room, long size, const Table& table)
      : measure(room), sums(room + QUERIES), size(size), table(table) {}

  // The numbers of the room: whole cache lines.
  static long room(long size) { return QUERIES * (1 + size); }

  void start() {
    std::fill_n(measure, QUERIES, -BIAS);
    std::fill_n(sums, QUERIES * size, 0.0f);
  }

  // What a product of query r begins with so that it ends with steps.
  IPOT_INLINE Vec before(long r) const { return all(-measure[r]); }

  // Set the measure higher, or at `first` anywhere; weights so far shrink accordingly.
  IPOT_INLINE void move(long r, float by, bool first) {
    measure[r] += by;
    if (first) return;
    const Vec shrink = exp2(all(-by / STEPS));
    for (long i = 0; i < size; i += LANES) {
      const Vec now = load_some(sums + r * size + i, size - i) * shrink;
      _mm512_mask_storeu_ps(sums + r * size + i, lanes(size - i), now);
    }
  }

  // From the steps of a block's keys, in the order of columns, to their weights.
  IPOT_INLINE void weigh(Vec (&steps)[BLOCK], long r, const Real& real, bool first,
                         Weights& weights) {
    Vec most = steps[0];
#pragma GCC unroll 8
    for (int v = 1; v < BLOCK; ++v) most = _mm512_max_ps(steps[v], most);
    const bool high = _mm512_cmp_ps_mask(most, all(BIAS + REACH), _CMP_GT_OQ);
    const bool low = !_mm512_cmp_ps_mask(most, all(first ? BIAS - REACH : 2 * NONE), _CMP_GT_OQ);
    if (__builtin_expect(high || low, 0)) {
      const float by = _mm512_reduce_max_ps(most) - BIAS;
      move(r, by, first);
#pragma GCC unroll 8
      for (int v = 0; v < BLOCK; ++v) steps[v] -= by;
    }
    const __m512i lower = _mm512_load_si512(table.numbers);
    const __m512i upper = _mm512_load_si512(table.numbers + 64);
#pragma GCC unroll 8
    for (int v = 0; v < BLOCK / 2; ++v) {
      __m512i both = _mm512_packs_epi32(_mm512_cvtps_epi32(steps[2 * v]),
                                        _mm512_cvtps_epi32(steps[2 * v + 1]));
      // What would be smaller than the smallest weight is that; of no real key nothing is left.
      both = _mm512_maskz_max_epi16(real.keys[v], both, _mm512_set1_epi16(128));
      const __m512i mantissa = _mm512_permutex2var_epi8(lower, both, upper);
      // The exponent of the one, the last seven bits of the other.
      weights[v] = _mm512_ternarylogic_epi32(both, mantissa, _mm512_set1_epi16(127), 0xd8);
    }
  }

  // Add the weights of a block to their sum.
  IPOT_INLINE void add(long r, const Weights& weights) {
    const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
    float* place = sums + r * size;
    Vec total = load(place), rest{};
    total = _mm512_dpbf16_ps(total, reinterpret_cast<__m512bh>(weights[0]), ones);
    rest = _mm512_dpbf16_ps(rest, reinterpret_cast<__m512bh>(weights[1]), ones);
    store(place, total + rest);
  }

  float total(long r) const { return _mm512_reduce_add_ps(load(sums + r * size)); }
  float log(long r) const { return ((measure[r] + BIAS) / STEPS + std::log2(total(r))) * LN_2; }

  float inverse(long r) const {
    const float all = total(r);
    return all == 0.0f ? 0.0f : 1.0f / all;
  }
};

}  // namespace halves

#endif
