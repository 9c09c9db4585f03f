// Small products of matrices in registers, and the exponential function, for one core.
//
// A product is C[r, :] = sum over k of A(r, k) B[k, :]. The columns of B and C lie side by side and
// fill vectors; A is read number by number, with any strides, so that it may stand either way.
// The compiler makes of these vectors what the machine has.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tiles {

// As many sums as there are registers for, but for those that hold a row of B and a number of A.
#if defined(__AVX512F__)
constexpr int LANES = 16, VECTORS = 4, ROWS = 6;
#elif defined(__AVX__)
constexpr int LANES = 8, VECTORS = 2, ROWS = 6;
#elif defined(__aarch64__)
constexpr int LANES = 4, VECTORS = 4, ROWS = 6;
#else
constexpr int LANES = 4, VECTORS = 2, ROWS = 4;
#endif
constexpr int PANEL = LANES * VECTORS;  // columns of a product that are computed at once

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef float Unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(LANES * 4)));

inline Vec load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
inline void store(float* to, Vec x) { *reinterpret_cast<Unaligned*>(to) = x; }
inline Vec all(float x) { return Vec{} + x; }
inline Vec larger(Vec x, Vec y) { return x > y ? x : y; }

inline float sum(Vec x) {
  float total = 0.0f;
  for (int i = 0; i < LANES; ++i) total += x[i];
  return total;
}

constexpr long padded(long size, long unit) { return (size + unit - 1) / unit * unit; }

// 2 to the power of x, for x of at most 127, to the last bit or two. What is not a number stays so.
inline Vec exp2(Vec x) {
  x = x < -126.0f ? all(-126.0f) : x;
  const Vec shift = all(12582912.0f);  // 1.5 * 2^23: added to a number it leaves the integer
  Vec moved = x + shift;
  Vec rest = x - (moved - shift);
  Vec power = reinterpret_cast<Vec>((reinterpret_cast<Bits>(moved) << 23) + (127u << 23));
  // A polynomial that is off by less than rounding, for half of one either way.
  Vec value = all(1.533757683e-4f);
  value = value * rest + 1.339986036e-3f;
  value = value * rest + 9.618519534e-3f;
  value = value * rest + 5.550328998e-2f;
  value = value * rest + 2.402264661e-1f;
  value = value * rest + 6.931472056e-1f;
  value = value * rest + 1.0f;
  return value * power;
}

// A matrix that is read number by number.
struct Scalars {
  const float* data;
  long row, column;

  Scalars below(long rows) const { return {data + rows * row, row, column}; }
};

template <int R, int V, bool ADD>
inline void tile(long depth, Scalars a, const float* b, long b_row, float* c, long c_row) {
  Vec sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = ADD ? load(c + r * c_row + v * LANES) : Vec{};
  for (long k = 0; k < depth; ++k) {
    Vec row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) row[v] = load(b + k * b_row + v * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      Vec number = all(a.data[r * a.row + k * a.column]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] += number * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(c + r * c_row + v * LANES, sums[r][v]);
}

template <int R, int V, bool ADD>
inline void last_rows(long rows, long depth, Scalars a, const float* b, long b_row, float* c,
                      long c_row) {
  if constexpr (R > 0) {
    if (rows == R)
      tile<R, V, ADD>(depth, a, b, b_row, c, c_row);
    else
      last_rows<R - 1, V, ADD>(rows, depth, a, b, b_row, c, c_row);
  }
}

// The product for any number of rows and V vectors of columns, added to C or in its place.
template <int V, bool ADD>
inline void product(long rows, long depth, Scalars a, const float* b, long b_row, float* c,
                    long c_row) {
  long r = 0;
  for (; r + ROWS <= rows; r += ROWS)
    tile<ROWS, V, ADD>(depth, a.below(r), b, b_row, c + r * c_row, c_row);
  last_rows<ROWS - 1, V, ADD>(rows - r, depth, a.below(r), b, b_row, c + r * c_row, c_row);
}

template <int V>
inline void last_columns(int vectors, long rows, long depth, Scalars a, const float* b, long b_row,
                         float* c, long c_row) {
  if constexpr (V > 0) {
    if (vectors == V)
      product<V, true>(rows, depth, a, b, b_row, c, c_row);
    else
      last_columns<V - 1>(vectors, rows, depth, a, b, b_row, c, c_row);
  }
}

// The same added to C, for columns that fill whole vectors but not one panel.
inline void add_product(long rows, long columns, long depth, Scalars a, const float* b, long b_row,
                        float* c, long c_row) {
  long done = 0;
  for (; done + PANEL <= columns; done += PANEL)
    product<VECTORS, true>(rows, depth, a, b + done, b_row, c + done, c_row);
  int left = static_cast<int>((columns - done) / LANES);
  last_columns<VECTORS - 1>(left, rows, depth, a, b + done, b_row, c + done, c_row);
}

}  // namespace tiles
