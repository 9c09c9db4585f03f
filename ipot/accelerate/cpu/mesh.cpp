// Attention of few queries over a mesh that all samples share, on a CPU, forward and backward.
//
// Of a key or a value, (x + sum over j of t_j w_j) r, the part x is the mesh's own and the same for
// all samples; numbers t_j and r are each sample's. So the products of queries with x are computed
// once for several samples, and so are, backward, those that sum over samples first:
//
//     score[b, n, m] = r[b, n] (q[m] . x[n] + sum over j of t[b, n, j] a[j, m])
//     a[j, m] = q[m] . w_j
//
// Answers come in two parts, the weighted means of r x and of r t: what the latter are multiplied
// by is the caller's, and so are the w_j. `ipot.accelerate.cpu.mesh` calls these, and `ipot.accelerate.shared_mesh` has
// the formula.
#include "calls.h"

using namespace rows;

namespace {

constexpr long SAMPLES = 4;  // that share a product

Shape answering(const Mesh& p) { return {p.samples, p.heads, p.queries, p.value_width}; }

// What all pieces of work read: queries and slopes, by panels and in powers of two.
struct Asked {
  std::vector<float> queries, slopes;

  explicit Asked(const Mesh& p)
      : queries(transposed(p.query, asking(p), p.scale * LOG2_E, p.threads)),
        slopes(widened(p.slope, {p.extras, p.heads, p.queries, 1})) {
    for (float& slope : slopes) slope *= p.scale * LOG2_E;
  }

  const float* panel(const Mesh& p, long head, long panel) const {
    return queries.data() + (head * asking(p).panels() + panel) * p.width * PANEL;
  }

  // Those of the j-th extra number are as far on as the next panel would be, times all panels.
  const float* slope(const Mesh& p, long head, long panel) const {
    return slopes.data() + (head * p.extras * asking(p).panels() + panel) * PANEL;
  }
};

// The score of a key in some lanes: what its sample adds to the product that all share.
inline Vec score(const Mesh& p, Vec shared, const float* slopes, long slope_row, const float* extra,
                 float factor) {
  for (long j = 0; j < p.extras; ++j) shared += all(extra[j]) * load(slopes + j * slope_row);
  return shared * all(factor);
}

// One block of keys for one sample: scores to weights, and these to sums.
void weigh(const Mesh& p, Running& now, const float* shared, float* weights, const float* slopes,
           const float* factor, const float* extra, long seen) {
  const long slope_row = asking(p).panels() * PANEL;
  for (int v = 0; v < PANEL; v += LANES) {
    Vec most = load(now.top + v);
    for (long r = 0; r < seen; ++r) {
      const Vec x = score(p, load(shared + r * PANEL + v), slopes + v, slope_row,
                          extra + r * p.extras, factor[r]);
      store(weights + r * PANEL + v, x);
      most = larger(x, most);
    }
    now.raise(v, most);
    Vec added{};
    for (long r = 0; r < seen; ++r) {
      const Vec weight = exp2(load(weights + r * PANEL + v) - most);
      added += weight;
      store(weights + r * PANEL + v, weight * all(factor[r]));
    }
    store(now.total + v, load(now.total + v) + added);
  }
}

}  // namespace

// Parts of answers: out (samples, queries, heads * value_width), means (samples, heads, extras,
// queries), lse (samples, heads, queries). Each share of the keys leaves parts of its own, which
// stand one after the other: joining them is a small matter of the caller's.
extern "C" long ipot_mesh_shares(const Mesh* p) { return pieces(p->keys, mesh_share(*p)); }

namespace {

void attend(const Mesh& p, float* out, float* means, float* lse) {
  const long width = p.value_width, panels = asking(p).panels(), sums = width + p.extras;
  const long taken = mesh_share(p), shares = pieces(p.keys, taken);
  const long groups = pieces(p.samples, SAMPLES);
  const Asked asked(p);
  Rooms<std::vector<float>> rooms(
      p.threads, std::vector<float>(SAMPLES * Running::size(sums) + 2 * KEYS * PANEL));
#pragma omp parallel num_threads(p.threads)
  {
    float *room = rooms.own().data(), *shared = room + SAMPLES * Running::size(sums);
    float* weights = shared + KEYS * PANEL;
#pragma omp for schedule(dynamic)
    for (long work = 0; work < groups * p.heads * shares * panels; ++work) {
      const long panel = work % panels, share = work / panels % shares;
      const long head = work / panels / shares % p.heads, group = work / panels / shares / p.heads;
      const long first = group * SAMPLES, last = std::min(p.samples, first + SAMPLES);
      const long end = std::min(p.keys, (share + 1) * taken);
      auto running = [&](long b) {
        return Running(room + (b - first) * Running::size(sums), sums);
      };
      for (long b = first; b < last; ++b) running(b).start();
      for (long n = share * taken; n < end; n += KEYS) {
        const long seen = std::min(KEYS, end - n);
        product<VECTORS, false>(seen, p.width, {p.key.at(0, n, head * p.width), p.key.row, 1},
                                asked.panel(p, head, panel), PANEL, shared, PANEL);
        for (long b = first; b < last; ++b) {
          Running now = running(b);
          const float* extra = p.extra + (b * p.keys + n) * p.extras;
          weigh(p, now, shared, weights, asked.slope(p, head, panel),
                p.factor + b * p.keys + n, extra, seen);
          product<VECTORS, true>(width, seen, {p.value.at(0, n, head * width), 1, p.value.row},
                                 weights, PANEL, now.sums, PANEL);
          product<VECTORS, true>(p.extras, seen, {extra, 1, p.extras}, weights, PANEL,
                                 now.sums + width * PANEL, PANEL);
        }
      }
      for (long b = first; b < last; ++b) {
        const Running now = running(b);
        const long at = share * p.samples + b;
        for (long j = 0; j < std::min<long>(PANEL, p.queries - panel * PANEL); ++j) {
          const long m = panel * PANEL + j;
          const float inverse = now.inverse(j);
          float* answer = out + ((at * p.queries + m) * p.heads + head) * width;
          for (long i = 0; i < width; ++i) answer[i] = now.sums[i * PANEL + j] * inverse;
          for (long i = 0; i < p.extras; ++i)
            means[((at * p.heads + head) * p.extras + i) * p.queries + m] =
                now.sums[(width + i) * PANEL + j] * inverse;
          lse[(at * p.heads + head) * p.queries + m] = now.log(j);
        }
      }
    }
  }
}

// What a backward pass reads besides, by panels: the gradients of both parts of the answers.
struct Gradients {
  std::vector<float> query_rows, answers, answer_rows, means, logs, deltas;

  Gradients(const Mesh& p, const float* d_out, const float* d_means, const float* lse,
            const float* delta)
      : query_rows(filled(p.query, asking(p), p.threads)),
        means(widened(d_means, {p.samples * p.heads, p.extras, p.queries, 1})),
        logs(widened(lse, answering(p))),
        deltas(widened(delta, answering(p))) {
    const long row = p.heads * p.value_width;
    const Rows rows = {d_out, p.queries * row, row};
    answers = transposed(rows, answering(p), 1.0f, p.threads);
    answer_rows = filled(rows, answering(p), p.threads);
    for (float& log : logs) log *= LOG2_E;
  }
};

// The room of one thread.
struct Room {
  std::vector<float> shared, weights, d_scores, total, d_key, d_value, found, slopes;
  long key_row, value_row;

  explicit Room(const Mesh& p)
      : shared(KEYS * PANEL),
        weights(KEYS * PANEL),
        d_scores(KEYS * PANEL),
        total(KEYS * PANEL),
        found(asking(p).panels() * p.width * PANEL),
        slopes(asking(p).panels() * p.extras * PANEL),
        key_row(padded(p.width, LANES)),
        value_row(padded(p.value_width, LANES)) {
    d_key.resize(KEYS * key_row);
    d_value.resize(KEYS * value_row);
  }

  // One sample's weights times its factors, and what it adds to the gradients of the products that
  // all share, and of slopes; the products of values with gradients are in `d_scores`.
  void differentiate(const Mesh& p, const float* slopes, const float* d_means, const float* log,
                     const float* delta, const float* factor, const float* extra, long seen,
                     float* d_slopes) {
    const long row = asking(p).panels() * PANEL;
    for (int v = 0; v < PANEL; v += LANES) {
      const Vec low = load(log + v), mean = load(delta + v);
      for (long r = 0; r < seen; ++r) {
        const float* numbers = extra + r * p.extras;
        const Vec x = score(p, load(&shared[r * PANEL + v]), slopes + v, row, numbers, factor[r]);
        const Vec weight = exp2(x - low), own = all(factor[r]);
        Vec d_weight = load(&d_scores[r * PANEL + v]);
        for (long j = 0; j < p.extras; ++j)
          d_weight += all(numbers[j]) * load(d_means + j * row + v);
        const Vec d_score = own * weight * (own * d_weight - mean);
        store(&weights[r * PANEL + v], weight * own);
        store(&total[r * PANEL + v], load(&total[r * PANEL + v]) + d_score);
        for (long j = 0; j < p.extras; ++j) {
          float* place = d_slopes + j * PANEL + v;
          store(place, load(place) + all(numbers[j]) * d_score);
        }
      }
    }
  }
};

// The gradients of queries, keys, values and slopes. delta (samples, heads, queries) is what the
// gradients of weights are relative to. Each group of samples leaves parts of the gradients of keys
// and values, and each share of the keys parts of the others; the caller adds them up.
void differentiate(const Mesh& p, const float* d_out, const float* d_means, const float* lse,
                   const float* delta, float* d_query, Place d_key, Place d_value, float* d_slope) {
  const long width = p.value_width, panels = asking(p).panels(), row = p.heads * p.width;
  const long taken = mesh_share(p), shares = pieces(p.keys, taken);
  const long groups = pieces(p.samples, SAMPLES);
  const Asked asked(p);
  const Gradients given_back(p, d_out, d_means, lse, delta);
  Rooms<Room> rooms(p.threads, Room(p));
#pragma omp parallel num_threads(p.threads)
  {
    Room& room = rooms.own();
    std::vector<float>&found = room.found, &slopes = room.slopes;
#pragma omp for schedule(dynamic)
    for (long work = 0; work < groups * p.heads * shares; ++work) {
      const long share = work % shares, head = work / shares % p.heads;
      const long group = work / shares / p.heads, end = std::min(p.keys, (share + 1) * taken);
      const long first = group * SAMPLES, last = std::min(p.samples, first + SAMPLES);
      std::fill(found.begin(), found.end(), 0.0f);
      std::fill(slopes.begin(), slopes.end(), 0.0f);
      for (long n = share * taken; n < end; n += KEYS) {
        const long seen = std::min(KEYS, end - n);
        const float* key = p.key.at(0, n, head * p.width);
        std::fill(room.d_key.begin(), room.d_key.end(), 0.0f);
        std::fill(room.d_value.begin(), room.d_value.end(), 0.0f);
        for (long panel = 0; panel < panels; ++panel) {
          product<VECTORS, false>(seen, p.width, {key, p.key.row, 1}, asked.panel(p, head, panel),
                                  PANEL, room.shared.data(), PANEL);
          std::fill(room.total.begin(), room.total.end(), 0.0f);
          for (long b = first; b < last; ++b) {
            const long at = b * p.heads + head, place = (at * panels + panel) * PANEL;
            product<VECTORS, false>(seen, width, {p.value.at(0, n, head * width), p.value.row, 1},
                                    given_back.answers.data() + place * width, PANEL,
                                    room.d_scores.data(), PANEL);
            room.differentiate(p, asked.slope(p, head, panel),
                               given_back.means.data() + (at * p.extras * panels + panel) * PANEL,
                               given_back.logs.data() + place, given_back.deltas.data() + place,
                               p.factor + b * p.keys + n, p.extra + (b * p.keys + n) * p.extras,
                               seen, slopes.data() + panel * p.extras * PANEL);
            add_product(seen, room.value_row, PANEL, {room.weights.data(), PANEL, 1},
                        given_back.answer_rows.data() + place * room.value_row, room.value_row,
                        room.d_value.data(), room.value_row);
          }
          add_product(seen, room.key_row, PANEL, {room.total.data(), PANEL, 1},
                      given_back.query_rows.data() + (head * panels + panel) * PANEL * room.key_row,
                      room.key_row, room.d_key.data(), room.key_row);
          product<VECTORS, true>(p.width, seen, {key, 1, p.key.row}, room.total.data(), PANEL,
                                 found.data() + panel * p.width * PANEL, PANEL);
        }
        for (long r = 0; r < seen; ++r) {
          float* to = d_key.at(group, n + r, head * p.width);
          for (long i = 0; i < p.width; ++i) to[i] = room.d_key[r * room.key_row + i] * p.scale;
          std::copy_n(&room.d_value[r * room.value_row], width,
                      d_value.at(group, n + r, head * width));
        }
      }
      const long part = group * shares + share;
      for (long m = 0; m < p.queries; ++m) {
        const long panel = m / PANEL, j = m % PANEL;
        for (long i = 0; i < p.width; ++i)
          d_query[(part * p.queries + m) * row + head * p.width + i] =
              found[(panel * p.width + i) * PANEL + j] * p.scale;
        for (long i = 0; i < p.extras; ++i)
          d_slope[((part * p.heads + head) * p.extras + i) * p.queries + m] =
              slopes[(panel * p.extras + i) * PANEL + j] * p.scale;
      }
    }
  }
}

}  // namespace

extern "C" long ipot_mesh_groups(const Mesh* p) { return pieces(p->samples, SAMPLES); }

// Both return 0, or 1 where there was not enough memory.
extern "C" int ipot_mesh_attend(const Mesh* p, float* out, float* means, float* lse) {
  return attempt([&] { attend(*p, out, means, lse); });
}

extern "C" int ipot_mesh_backward(const Mesh* p, const float* d_out, const float* d_means,
                                  const float* lse, const float* delta, float* d_query,
                                  const Place* d_key, const Place* d_value, float* d_slope) {
  return attempt([&] {
    differentiate(*p, d_out, d_means, lse, delta, d_query, *d_key, *d_value, d_slope);
  });
}
