// Products of numbers rounded to bf16, two of them at a time, for one core. Sums are in float32.
//
// A product is C[r, :] = sum over k of A[r, k] B[k, :], as in `tiles.h`. Numbers stand in pairs
// along k: a row of A as it lies, B with the rows k and k + 1 woven into one. An odd one has a zero
// beside it. What is not in here, such as sums of weights, is never rounded.
#pragma once

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__) && !defined(IPOT_NO_HALVES)
#define IPOT_HALVES

#include <memory>

#include <immintrin.h>

#include "calls.h"

namespace halves {

using namespace rows;

// Sums live in registers for as long as nobody takes their address: all that handles them is
// inlined.
#define IPOT_INLINE inline __attribute__((always_inline))

typedef uint32_t Pair;  // the first number in the lower half

// Room that begins with a cache line, and is not filled: loads of whole vectors cross no lines.
template <typename Number>
class Room {
  static constexpr long MOST = 1L << 60;  // more than any memory has
  struct Free {
    void operator()(Number* numbers) const { operator delete[](numbers, std::align_val_t(64)); }
  };
  std::unique_ptr<Number[], Free> numbers;

 public:
  explicit Room(long count) {
    if (count < 0 || count > MOST) throw std::bad_alloc();
    void* place = operator new[](std::max(1L, count) * sizeof(Number), std::align_val_t(64));
    numbers.reset(static_cast<Number*>(place));
  }

  Number* data() const { return numbers.get(); }
};

constexpr long pairs_of(long count) { return (count + 1) / 2; }

// The lanes of a vector that hold the first `count` numbers of what begins there.
inline __mmask16 lanes(long count) {
  return count >= LANES ? 0xffff : count <= 0 ? 0 : (1u << count) - 1;
}

inline Vec load_some(const float* from, long count) {
  return _mm512_maskz_loadu_ps(lanes(count), from);
}

inline __m512i rounded(Vec first, Vec second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

// The sizes of numbers whose products are far from infinite.
constexpr float USUAL = 1e15f;

// The lanes of what is not smaller than that, or not a number.
inline __mmask16 unusual(Vec x) {
  return _mm512_cmp_ps_mask(_mm512_abs_ps(x), all(USUAL), _CMP_NLT_UQ);
}

// A row in pairs, times a factor, with zeros up to a whole number of vectors. Returns whether all
// numbers are of usual size.
inline bool round_row(const float* from, long width, float factor, Pair* to) {
  unsigned found = 0;
  for (long i = 0; i < width; i += 2 * LANES) {
    const Vec low = load_some(from + i, width - i) * factor;
    const Vec high =
        width - i > LANES ? load_some(from + i + LANES, width - i - LANES) * factor : Vec{};
    found |= unusual(low) | unusual(high);
    _mm512_storeu_si512(to + i / 2, rounded(low, high));
  }
  return found == 0;
}

// Two rows woven into one, with zeros up to `row`. Returns the same.
inline bool weave(const float* first, const float* second, long width, long row, Pair* to) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  unsigned found = 0;
  for (long i = 0; i < row; i += LANES) {
    const Vec low = load_some(first + i, width - i), high = load_some(second + i, width - i);
    found |= unusual(low) | unusual(high);
    const __m512i woven = _mm512_permutexvar_epi16(order, rounded(low, high));
    _mm512_mask_storeu_epi32(to + i, lanes(row - i), woven);
  }
  return found == 0;
}

template <int R, int V>
IPOT_INLINE void multiply(Vec (&sums)[R][V], long depth, const Pair* a, long a_row, const Pair* b,
                     long b_row) {
  for (long k = 0; k < depth; ++k) {
    __m512bh row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      row[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + k * b_row + v * LANES));
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const auto number = reinterpret_cast<__m512bh>(_mm512_set1_epi32(a[r * a_row + k]));
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], number, row[v]);
    }
  }
}

// As many rows as there are registers for.
template <int V>
constexpr int rows_at_once() {
  return V > 3 ? 6 : V > 2 ? 8 : 12;
}

// The rows of a product, some at a time: row r begins with `start(r)` in all columns, and
// `use(r, sums)` takes those from r on.
template <int R, int V, typename Start, typename Use>
IPOT_INLINE void some_rows(long rows, long depth, const Pair* a, long a_row, const Pair* b,
                           long b_row, Start start, Use use, long r = 0) {
  for (; r + R <= rows; r += R) {
    Vec sums[R][V];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[i][v] = start(r + i);
    multiply<R, V>(sums, depth, a + r * a_row, a_row, b, b_row);
    use(r, sums);
  }
  if constexpr (R > 1) {
    if (r < rows) some_rows<(R + 1) / 2, V>(rows, depth, a, a_row, b, b_row, start, use, r);
  }
}

inline Vec nothing(long) { return Vec{}; }

// V vectors of columns, added to C, or to offsets in its place.
template <int V, bool ADD>
inline void some_columns(long rows, long depth, const Pair* a, long a_row, const Pair* b,
                         long b_row, const float* offsets, float* c, long c_row) {
  auto leave = [&](long r, auto& sums) __attribute__((always_inline)) {
    constexpr int R = sizeof(sums) / sizeof(sums[0]);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        float* place = c + (r + i) * c_row + v * LANES;
        store(place, sums[i][v] + load(ADD ? place : offsets + v * LANES));
      }
  };
  some_rows<rows_at_once<V>(), V>(rows, depth, a, a_row, b, b_row, nothing, leave);
}

// HALF columns added to C, in vectors of half the size, of which two are multiplied at a time.
constexpr long HALF = LANES / 2;

template <int R>
IPOT_INLINE void add_half(long rows, long depth, const Pair* a, const Pair* b, float* c,
                          long a_row, long c_row, long r = 0) {
  for (; r + R <= rows; r += R) {
    __m256 sums[R];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) sums[i] = _mm256_loadu_ps(c + (r + i) * c_row);
    for (long k = 0; k < depth; ++k) {
      const __m256i row = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + k * HALF));
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const __m256i number = _mm256_set1_epi32(a[(r + i) * a_row + k]);
        sums[i] = _mm256_dpbf16_ps(sums[i], reinterpret_cast<__m256bh>(number),
                                   reinterpret_cast<__m256bh>(row));
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) _mm256_storeu_ps(c + (r + i) * c_row, sums[i]);
  }
  if constexpr (R > 1) {
    if (r < rows) add_half<(R + 1) / 2>(rows, depth, a, b, c, a_row, c_row, r);
  }
}

template <bool ADD>
inline void all_columns(long rows, long columns, long depth, const Pair* a, long a_row,
                        const Pair* b, long b_row, const float* offsets, float* c, long c_row) {
  long done = 0;
  for (; done + 4 * LANES <= columns; done += 4 * LANES)
    some_columns<4, ADD>(rows, depth, a, a_row, b + done, b_row, offsets + done, c + done, c_row);
  const auto last = columns - done == 3 * LANES   ? some_columns<3, ADD>
                    : columns - done == 2 * LANES ? some_columns<2, ADD>
                                                  : some_columns<1, ADD>;
  if (done < columns)
    last(rows, depth, a, a_row, b + done, b_row, offsets + done, c + done, c_row);
}

// The product added to C, for columns that fill whole vectors, or HALF a one.
inline void add_product(long rows, long columns, long depth, const Pair* a, long a_row,
                        const Pair* b, long b_row, float* c, long c_row) {
  if (columns == HALF) return add_half<12>(rows, depth, a, b, c, a_row, c_row);
  all_columns<true>(rows, columns, depth, a, a_row, b, b_row, c, c, c_row);
}

// The same in the place of C, and with offsets of the columns.
inline void set_product(long rows, long columns, long depth, const Pair* a, long a_row,
                        const Pair* b, long b_row, const float* offsets, float* c, long c_row) {
  all_columns<false>(rows, columns, depth, a, a_row, b, b_row, offsets, c, c_row);
}

}  // namespace halves

#endif
