// softmax(Q K^T) V on a CPU with products in bf16, forward, as `attend.cpp` has it in float32.
//
// Queries, keys, weights and wide values are rounded. Narrow values are not: a mean of them may be
// much smaller than they are, and what is left of it after rounding is all that comes out.
#include "half_softmax.h"

#if defined(IPOT_HALVES)

using namespace halves;

namespace {

// Narrow values by channels, each split in two: (samples, heads, width, 2, blocks * WIDE / 2), with
// zeros behind them and where a mask hides them.
struct Channels {
  long row, width;
  std::vector<Pair> data;
  bool usual = true;

  explicit Channels(const Problem& p)
      : row(blocks_of(p.keys) * WIDE / 2),
        width(p.value_width),
        data(p.samples * p.heads * width * 2 * row) {
    std::vector<float> channel(p.keys);
    for (long at = 0; at < p.samples * p.heads * width; ++at) {
      const long b = at / width / p.heads, i = at % (width * p.heads);
      for (long n = 0; n < p.keys; ++n)
        channel[n] = p.mask && !p.mask[b * p.keys + n] ? 0.0f : *p.value.at(b, n, i);
      usual = usual && halves::usual(channel.data(), p.keys);
      split(channel.data(), p.keys, data.data() + 2 * at * row, data.data() + (2 * at + 1) * row);
    }
  }

  // Those of channel i; what rounding took from them is `row` behind.
  const Pair* at(long head, long i, long n) const {
    return data.data() + 2 * (head * width + i) * row + n / 2;
  }
};

// What one call reads.
struct Packed {
  bool narrow;
  Queries queries;
  Keys keys;
  Values values;
  Channels channels;

  explicit Packed(const Problem& p)
      : narrow(p.value_width <= NARROW),
        queries(p.query, asking(p), p.scale * LOG2_E * STEPS, p.threads),
        keys(p.key, {p.samples, p.heads, p.keys, p.width}, p.mask, p.threads),
        values(p.value, {p.samples, p.heads, narrow ? 0 : p.keys, p.value_width}, p.mask,
               p.threads),
        channels(narrow ? p : Problem{}) {}

  bool usual() const { return queries.usual && keys.usual && values.usual && channels.usual; }
};

// One block of keys and some queries: `then(r, weights)` takes the weights of each.
template <typename Then>
IPOT_INLINE void weigh(long count, const Pair* query, long query_row, const Pair* key, long depth,
                       Softmax& now, const Real& real, bool first, Then then) {
  auto before = [&](long r) __attribute__((always_inline)) { return now.before(r); };
  auto use = [&](long r, auto& steps) __attribute__((always_inline)) {
    constexpr int R = sizeof(steps) / sizeof(steps[0]);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      Weights weights;
      now.weigh(steps[i], r + i, real, first, weights);
      now.add(r + i, weights);
      then(r + i, weights);
    }
  };
  some_rows<6, BLOCK>(count, depth, query, query_row, key, WIDE, before, use);
}

// Some queries of one head of one sample over some keys.
void attend_some(const Problem& p, const Packed& packed, long b, long head, long m, long count,
                 long begin, long end, Softmax& now, Pair* room) {
  const long at = b * p.heads + head;
  const Pair* query = packed.queries.at(b % p.query_samples, head, m);
  bool first = true;
  now.start();
  for (long n = begin; n < end; n += WIDE) {
    const Real real(p.mask ? p.mask + b * p.keys + n : nullptr, end - n);
    if (!real.any()) continue;
    auto each = [&](auto then) __attribute__((always_inline)) {
      weigh(count, query, packed.queries.row, packed.keys.block(b, head, n), packed.keys.depth,
            now, real, first, then);
    };
    if (packed.narrow) {
      each([&](long r, const Weights& weights) __attribute__((always_inline)) {
        for (long i = 0; i < p.value_width; ++i) {
          float* place = &now.sums[r * now.size + (1 + i) * LANES];
          const Pair* values = packed.channels.at(at, i, n);
          store(place, add_split(load(place), weights, values, values + packed.channels.row));
        }
      });
    } else {
      each([&](long r, const Weights& weights) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int v = 0; v < BLOCK / 2; ++v)
          _mm512_storeu_si512(room + (r * BLOCK / 2 + v) * LANES, weights[v]);
      });
      add_product(count, packed.values.row, pairs_of(std::min(WIDE, end - n)), room, WIDE / 2,
                  packed.values.block(b, head, n), packed.values.row, now.sums + LANES,
                  now.size);
    }
    first = false;
  }
}

void attend(const Problem& p, const Packed& packed, float* out, float* lse) {
  const long width = p.value_width, answers = p.samples * p.queries * p.heads;
  const long size = LANES + (packed.narrow ? width * LANES : packed.values.row);
  const long taken = key_share(p), shares = pieces(p.keys, taken);
  const long groups = pieces(p.queries, QUERIES);
  std::vector<float> outs(shares > 1 ? shares * answers * width : 0);
  std::vector<float> logs(shares > 1 ? shares * answers : 0);
  const Table table;
  const Room<float> rooms(p.threads * Softmax::room(size));
  const Room<Pair> weights(p.threads * QUERIES * WIDE / 2);
#pragma omp parallel num_threads(p.threads)
  {
    const long thread = omp_get_thread_num();
    Softmax now(rooms.data() + thread * Softmax::room(size), size, table);
    Pair* room = weights.data() + thread * QUERIES * WIDE / 2;
#pragma omp for schedule(dynamic)
    for (long work = 0; work < p.samples * p.heads * shares * groups; ++work) {
      const long group = work % groups, share = work / groups % shares;
      const long head = work / groups / shares % p.heads, b = work / groups / shares / p.heads;
      const long m = group * QUERIES, count = std::min(QUERIES, p.queries - m);
      attend_some(p, packed, b, head, m, count, share * taken,
                  std::min(p.keys, (share + 1) * taken), now, room);
      float* to = shares > 1 ? outs.data() + share * answers * width : out;
      float* log = shares > 1 ? logs.data() + share * answers : lse;
      for (long r = 0; r < count; ++r) {
        const float inverse = now.inverse(r), *sums = &now.sums[r * size + LANES];
        float* answer = to + ((b * p.queries + m + r) * p.heads + head) * width;
        if (packed.narrow)
          for (long i = 0; i < width; ++i)
            answer[i] = _mm512_reduce_add_ps(load(sums + i * LANES)) * inverse;
        else
          for (long i = 0; i < width; ++i) answer[i] = sums[i] * inverse;
        if (log) log[(b * p.heads + head) * p.queries + m + r] = now.log(r);
      }
    }
  }
  if (shares < 2) return;
  std::vector<float> unasked(lse ? 0 : answers);
  join(p, outs, logs, shares, out, lse ? lse : unasked.data());
}

}  // namespace

// lse may be none. `done` says whether there are answers: numbers that are large beyond measure, or
// none, are left to others. Returns 0, or 1 where there was not enough memory.
extern "C" int ipot_half_attend(const Problem* p, float* out, float* lse, int* done) {
  return attempt([&] {
    const Packed packed(*p);
    *done = packed.usual();
    if (*done) attend(*p, packed, out, lse);
  });
}

#endif
