// Attention of few queries over a mesh that all samples share, on a CPU with products in bf16,
// forward, from the values of samples to their answers. `mesh.cpp` has the heart of it in float32,
// and `ipot.accelerate.shared_mesh` what is around that.
//
// Of a key or a value, (x + sum over j of t_j w_j) r, the part x is the mesh's own. Weights come
// times the factors r of their keys, which are added to scores as logarithms: so they are what x is
// multiplied by, and their sum is that of such weights divided by r. These sums, and those of t,
// are unrounded but for the weights.
#include "half_softmax.h"

#if defined(IPOT_HALVES)

using namespace halves;

namespace {

constexpr long SAMPLES = 4;  // that share a product
constexpr float LEAST = 1e-15f;  // of deviations: they are divided by

// What each sample has of its own: factors r and extras t, its channels and behind them minus the
// mean of the token. By columns, one after another for each block: factors, their logarithms in
// steps, extras. In the order of keys: inverse factors and extras, each split in two.
struct Own {
  long extras, blocks, row, pairs;
  Room<float> columns;
  Room<Pair> numbers;
  bool usual = true;

  explicit Own(const Tokens& p)
      : extras(p.own + 1),
        blocks(blocks_of(p.keys)),
        row((2 + extras) * WIDE),
        pairs((1 + extras) * WIDE),
        columns(p.samples * blocks * row),
        numbers(p.samples * blocks * pairs) {
    bool fine = true;
    const Room<float> rooms(p.threads * (1 + extras) * WIDE);
#pragma omp parallel for num_threads(p.threads) schedule(static) reduction(&& : fine)
    for (long work = 0; work < p.samples * blocks; ++work) {
      const long b = work / blocks, n = work % blocks * WIDE;
      float* to = columns.data() + work * row;
      float* lines = rooms.data() + omp_get_thread_num() * (1 + extras) * WIDE;
      for (long j = 0; j < WIDE; ++j) {
        const long k = n + j < p.keys ? n + j : n;  // as `Keys` has it
        const float* own = p.channels.at(b, k, 0);
        float total = p.sums[2 * k], squares = p.sums[2 * k + 1];
        for (long i = 0; i < p.own; ++i) {
          lines[(1 + i) * WIDE + j] = own[i];
          total += own[i];
          squares += own[i] * own[i];
        }
        const float mean = total / p.layer.inputs;
        const float deviation = std::sqrt(squares / p.layer.inputs - mean * mean + p.epsilon);
        lines[j] = deviation;
        lines[extras * WIDE + j] = -mean;
        to[column(j)] = 1.0f / deviation;
        fine = fine && deviation > LEAST;
      }
      for (long j = 0; j < WIDE; j += LANES) {
        const Vec steps = -STEPS * short_log2(load(lines + j));
        for (long i = 0; i < LANES; ++i) to[WIDE + column(j + i)] = steps[i];
      }
      fine = fine && halves::usual(lines, (1 + extras) * WIDE);
      Pair* place = numbers.data() + work * pairs;
      for (long i = 0; i <= extras; ++i, place += WIDE) {
        split(lines + i * WIDE, WIDE, place, place + WIDE / 2);
        if (i)
          for (long j = 0; j < WIDE; ++j) to[(1 + i) * WIDE + column(j)] = lines[i * WIDE + j];
      }
    }
    usual = fine;
  }

  const float* block(long b, long n) const {
    return columns.data() + (b * blocks + n / WIDE) * row;
  }
  const Pair* split_block(long b, long n) const {
    return numbers.data() + (b * blocks + n / WIDE) * pairs;
  }
};

// What the layer makes of extras: w_j, (extras, outputs), and what it adds, (outputs).
struct Rank {
  std::vector<float> weights, offsets;

  explicit Rank(const Tokens& p) {
    const long outputs = p.layer.outputs, inputs = p.layer.inputs, first = inputs - p.own;
    weights.resize((p.own + 1) * outputs);
    offsets.resize(outputs);
    for (long o = 0; o < outputs; ++o) {
      const float* weight = p.layer.weight + o * p.layer.row;
      float total = 0.0f, offset = p.layer.bias ? p.layer.bias[o] : 0.0f;
      for (long i = 0; i < inputs; ++i) {
        total += weight[i] * p.layer.scale[i];
        offset += weight[i] * p.layer.shift[i];
      }
      for (long j = 0; j < p.own; ++j)
        weights[j * outputs + o] = weight[first + j] * p.layer.scale[first + j];
      weights[p.own * outputs + o] = total;
      offsets[o] = offset;
    }
  }
};

// What one call reads.
struct Packed {
  Queries queries;
  Keys keys;
  Values values;
  Own own;
  Rank rank;
  std::vector<float> slopes;  // products of queries with w_j in steps, (heads, queries, extras)
  bool usual;

  explicit Packed(const Tokens& p)
      : queries(p.query, {1, p.heads, p.queries, p.width}, p.scale * LOG2_E * STEPS, p.threads),
        keys(p.key, {1, p.heads, p.keys, p.width}, nullptr, p.threads),
        values(p.value, {1, p.heads, p.keys, p.value_width}, nullptr, p.threads),
        own(p),
        rank(p),
        slopes(p.heads * p.queries * own.extras) {
    for (long at = 0; at < p.heads * p.queries; ++at) {
      const long head = at / p.queries;
      const float* query = p.query.at(0, at % p.queries, head * p.width);
      for (long j = 0; j < own.extras; ++j) {
        const float* weight = &rank.weights[j * p.layer.outputs + head * p.width];
        float total = 0.0f;
        for (long i = 0; i < p.width; ++i) total += query[i] * weight[i];
        slopes[at * own.extras + j] = total * p.scale * LOG2_E * STEPS;
      }
    }
    usual = queries.usual && keys.usual && values.usual && own.usual &&
            halves::usual(slopes.data(), slopes.size());
  }
};

// One block of keys for one sample: from the products that all samples share to the weights of
// some queries, and to the sums of what is summed unrounded. EXTRAS are how many there are of a
// sample's numbers, or 0 where that is not known beforehand.
template <long EXTRAS>
void weigh(long some, Softmax& now, const float* shared, const float* own, const Pair* numbers,
           const float* slopes, long count, const Real& real, bool first, Pair* room) {
  const long extras = EXTRAS ? EXTRAS : some;
  for (long r = 0; r < count; ++r, slopes += extras) {
    Vec steps[BLOCK];
#pragma GCC unroll 8
    for (int v = 0; v < BLOCK; ++v) steps[v] = load(shared + r * WIDE + v * LANES);
    for (long i = 0; i < extras; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < BLOCK; ++v)
        steps[v] += all(slopes[i]) * load(own + (2 + i) * WIDE + v * LANES);
#pragma GCC unroll 8
    for (int v = 0; v < BLOCK; ++v)
      steps[v] = steps[v] * load(own + v * LANES) +
                 (load(own + WIDE + v * LANES) + now.before(r));
    Weights weights;
    now.weigh(steps, r, real, first, weights);
    for (long i = 0; i < 1 + extras; ++i) {
      float* place = now.sums + r * now.size + i * LANES;
      const Pair* high = numbers + i * WIDE;
      store(place, add_split(load(place), weights, high, high + WIDE / 2));
    }
#pragma GCC unroll 8
    for (int v = 0; v < BLOCK / 2; ++v)
      _mm512_store_si512(room + (r * BLOCK / 2 + v) * LANES, weights[v]);
  }
}

// The room of one thread.
struct Desk {
  long size;  // of the sums of a query
  Room<float> sums, shared;
  Room<Pair> weights;

  explicit Desk(const Packed& packed)
      : size((1 + packed.own.extras) * LANES + packed.values.row),
        sums(SAMPLES * Softmax::room(size)),
        shared(QUERIES * WIDE),
        weights(QUERIES * WIDE / 2) {}
};

// Some queries of one head over some keys, for the samples from `first` to `last`.
void attend_some(const Tokens& p, const Packed& packed, long head, long m, long count, long begin,
                 long end, long first, long last, const Table& table, const Desk& desk) {
  auto running = [&](long b) {
    return Softmax(desk.sums.data() + (b - first) * Softmax::room(desk.size), desk.size, table);
  };
  for (long b = first; b < last; ++b) running(b).start();
  float* shared = desk.shared.data();
  auto keep = [&](long r, auto& sums) __attribute__((always_inline)) {
    constexpr int R = sizeof(sums) / sizeof(sums[0]);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < BLOCK; ++v) store(shared + (r + i) * WIDE + v * LANES, sums[i][v]);
  };
  const long extras = packed.own.extras;
  const float* slopes = packed.slopes.data() + (head * p.queries + m) * extras;
  for (long n = begin; n < end; n += WIDE) {
    const Real real(nullptr, end - n);
    some_rows<6, BLOCK>(count, packed.keys.depth, packed.queries.at(0, head, m),
                        packed.queries.row, packed.keys.block(0, head, n), WIDE, nothing, keep);
    for (long b = first; b < last; ++b) {
      Softmax now = running(b);
      (extras == 2 ? weigh<2> : weigh<0>)(
          extras, now, shared, packed.own.block(b, n), packed.own.split_block(b, n), slopes, count,
          real, n == begin, desk.weights.data());
      add_product(count, packed.values.row, pairs_of(std::min(WIDE, end - n)),
                  desk.weights.data(), WIDE / 2, packed.values.block(0, head, n),
                  packed.values.row, now.sums + (1 + extras) * LANES, now.size);
    }
  }
}

// Answers to shares of the keys: their numbers, means of r x and behind them of r t, (shares,
// samples, heads, queries, size), and the logarithms of the sums of weights.
struct Parts {
  long taken, shares, size, each;
  Room<float> numbers, logs;

  Parts(const Tokens& p, long extras)
      : taken(share_of(p.keys, p.samples * p.queries * p.heads * p.width)),
        shares(pieces(p.keys, taken)),
        size(p.value_width + extras),
        each(p.samples * p.heads * p.queries),
        numbers(shares * each * size),
        logs(shares * each) {}

  void take(const Softmax& now, long count, long first, long extras) const {
    for (long r = 0; r < count; ++r) {
      const float inverse = now.inverse(r), *sums = now.sums + r * now.size + LANES;
      float* to = numbers.data() + (first + r) * size;
      for (long i = 0; i < extras; ++i)
        to[size - extras + i] = _mm512_reduce_add_ps(load(sums + i * LANES)) * inverse;
      for (long i = 0; i < size - extras; ++i) to[i] = sums[extras * LANES + i] * inverse;
      logs.data()[first + r] = now.log(r);
    }
  }

  // The answer of one query to all keys.
  void join(long at, float* to) const {
    float top = -INFINITY, total = 0.0f;
    for (long s = 0; s < shares; ++s) top = std::max(top, logs.data()[s * each + at]);
    std::fill_n(to, size, 0.0f);
    for (long s = 0; s < shares; ++s) {
      const float weight = std::exp(logs.data()[s * each + at] - top);
      const float* from = numbers.data() + (s * each + at) * size;
      for (long i = 0; i < size; ++i) to[i] += weight * from[i];
      total += weight;
    }
    for (long i = 0; i < size; ++i) to[i] /= total;
  }
};

// The answer to each query, (samples, queries, heads * value_width), from its parts: what samples
// have of their own is added.
void answer(const Tokens& p, const Packed& packed, const Parts& parts, float* out) {
  const long width = p.value_width, outputs = p.layer.outputs, extras = packed.own.extras;
  const Room<float> rooms(p.threads * parts.size);
#pragma omp parallel for num_threads(p.threads) schedule(static)
  for (long at = 0; at < parts.each; ++at) {
    const long m = at % p.queries, head = at / p.queries % p.heads, b = at / p.queries / p.heads;
    float* one = rooms.data() + omp_get_thread_num() * parts.size;
    parts.join(at, one);
    const long first = p.heads * p.width + head * width;  // of its values among the outputs
    float* to = out + ((b * p.queries + m) * p.heads + head) * width;
    for (long i = 0; i < width; ++i) to[i] = one[i] + packed.rank.offsets[first + i];
    for (long j = 0; j < extras; ++j)
      for (long i = 0; i < width; ++i)
        to[i] += one[width + j] * packed.rank.weights[j * outputs + first + i];
  }
}

void attend(const Tokens& p, const Packed& packed, float* out) {
  const long groups = pieces(p.samples, SAMPLES), queries = pieces(p.queries, QUERIES);
  const Parts parts(p, packed.own.extras);
  const Table table;
  std::vector<Desk> desks;
  for (int i = 0; i < p.threads; ++i) desks.emplace_back(packed);
#pragma omp parallel for num_threads(p.threads) schedule(dynamic)
  for (long work = 0; work < groups * p.heads * parts.shares * queries; ++work) {
    const Desk& desk = desks[omp_get_thread_num()];
    const long m = work % queries * QUERIES, share = work / queries % parts.shares;
    const long head = work / queries / parts.shares % p.heads;
    const long first = work / queries / parts.shares / p.heads * SAMPLES;
    const long last = std::min(p.samples, first + SAMPLES);
    const long count = std::min(QUERIES, p.queries - m);
    attend_some(p, packed, head, m, count, share * parts.taken,
                std::min(p.keys, (share + 1) * parts.taken), first, last, table, desk);
    for (long b = first; b < last; ++b) {
      float* room = desk.sums.data() + (b - first) * Softmax::room(desk.size);
      const long at = ((share * p.samples + b) * p.heads + head) * p.queries + m;
      parts.take(Softmax(room, desk.size, table), count, at, packed.own.extras);
    }
  }
  answer(p, packed, parts, out);
}

}  // namespace

// The answers, (samples, queries, heads * value_width). `done` says whether there are any: numbers
// that are large beyond measure, or none, are left to others. Returns 0, or 1 where there was not
// enough memory.
extern "C" int ipot_half_mesh_attend(const Tokens* p, float* out, int* done) {
  return attempt([&] {
    const Packed packed(*p);
    *done = packed.usual;
    if (packed.usual) attend(*p, packed, out);
  });
}

#endif
