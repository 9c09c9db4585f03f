// softmax(Q K^T) V on a CPU, forward and backward, with the scores of a block held at a time.
//
// Scores stand keys by queries. So a panel of queries fills vectors, sums over keys are sums of
// vectors, and of all matrices only queries (and the gradients of answers) are rearranged, once.
// All in powers of two: queries are multiplied by log2(e) as well as by their scale.
//
// `ipot.accelerate.cpu.attention` calls these; `ipot.nn.attention.attention` is the formula.
#include "calls.h"

using namespace rows;

namespace {

constexpr long GROUP = 4;         // panels of queries that see a block of keys one after the other

Shape answering(const Problem& p) { return {p.samples, p.heads, p.queries, p.value_width}; }

// From the scores of a block to its weights, relative to the largest score so far.
void weigh(Running& now, float* scores, long seen, const uint8_t* real) {
  for (int v = 0; v < PANEL; v += LANES) {
    Vec most = load(now.top + v);
    for (long r = 0; r < seen; ++r)
      if (!real || real[r]) most = larger(load(scores + r * PANEL + v), most);
    now.raise(v, most);
    Vec added{};
    for (long r = 0; r < seen; ++r) {
      Vec weight = exp2(load(scores + r * PANEL + v) - most);
      if (real && !real[r]) weight = Vec{};
      added += weight;
      store(scores + r * PANEL + v, weight);
    }
    store(now.total + v, load(now.total + v) + added);
  }
}

// out is (samples, queries, heads * value_width), lse (samples, heads, queries): the logarithm of
// the sum of the weights, minus infinity where a sample has no real key.
void attend(const Problem& p, float* out, float* lse) {
  const long width = p.value_width, panels = asking(p).panels();
  const long all = p.samples * p.queries * p.heads;
  const long taken = key_share(p);
  const long shares = pieces(p.keys, taken), groups = pieces(panels, GROUP);
  const auto queries = transposed(p.query, asking(p), p.scale * LOG2_E, p.threads);
  std::vector<float> outs(shares > 1 ? shares * all * width : 0);
  std::vector<float> logs(shares > 1 ? shares * all : 0);
  Rooms<std::vector<float>> rooms(
      p.threads, std::vector<float>(GROUP * Running::size(width) + KEYS * PANEL));
#pragma omp parallel num_threads(p.threads)
  {
    float *room = rooms.own().data(), *scores = room + GROUP * Running::size(width);
#pragma omp for schedule(dynamic)
    for (long work = 0; work < p.samples * p.heads * shares * groups; ++work) {
      const long group = work % groups, share = work / groups % shares;
      const long head = work / groups / shares % p.heads, b = work / groups / shares / p.heads;
      const long first = group * GROUP, last = std::min(panels, first + GROUP);
      const long end = std::min(p.keys, (share + 1) * taken);
      const float* asked =
          queries.data() + ((b % p.query_samples) * p.heads + head) * panels * p.width * PANEL;
      auto running = [&](long panel) {
        return Running(room + (panel - first) * Running::size(width), width);
      };
      for (long panel = first; panel < last; ++panel) running(panel).start();
      for (long n = share * taken; n < end; n += KEYS) {
        const long seen = std::min(KEYS, end - n);
        const uint8_t* real = p.mask ? p.mask + b * p.keys + n : nullptr;
        for (long panel = first; panel < last; ++panel) {
          Running now = running(panel);
          product<VECTORS, false>(seen, p.width, {p.key.at(b, n, head * p.width), p.key.row, 1},
                                  asked + panel * p.width * PANEL, PANEL, scores, PANEL);
          weigh(now, scores, seen, real);
          product<VECTORS, true>(width, seen, {p.value.at(b, n, head * width), 1, p.value.row},
                                 scores, PANEL, now.sums, PANEL);
        }
      }
      float* to = shares > 1 ? outs.data() + share * all * width : out;
      float* log = shares > 1 ? logs.data() + share * all : lse;
      for (long panel = first; panel < last; ++panel) {
        const Running now = running(panel);
        for (long j = 0; j < std::min<long>(PANEL, p.queries - panel * PANEL); ++j) {
          const long m = panel * PANEL + j;
          const float inverse = now.inverse(j);
          float* answer = to + ((b * p.queries + m) * p.heads + head) * width;
          for (long i = 0; i < width; ++i) answer[i] = now.sums[i * PANEL + j] * inverse;
          log[(b * p.heads + head) * p.queries + m] = now.log(j);
        }
      }
    }
  }
  if (shares > 1) join(p, outs, logs, shares, out, lse);
}

// What a backward pass reads, rearranged once.
struct Asked {
  std::vector<float> queries, query_rows, gradients, gradient_rows, logs, deltas;

  Asked(const Problem& p, const float* gradient, const float* out, const float* lse)
      : queries(transposed(p.query, asking(p), p.scale * LOG2_E, p.threads)),
        query_rows(filled(p.query, asking(p), p.threads)),
        logs(widened(lse, answering(p))),
        deltas(logs.size()) {
    const long width = p.value_width, row = p.heads * width, wide = asking(p).panels() * PANEL;
    const Rows answers = {gradient, p.queries * row, row};
    gradients = transposed(answers, answering(p), 1.0f, p.threads);
    if (width > NARROW) gradient_rows = filled(answers, answering(p), p.threads);
    // Without a real key there is no weight, whatever is subtracted.
    for (float& log : logs) log = log == -INFINITY ? 0.0f : log * LOG2_E;
#pragma omp parallel for num_threads(p.threads) schedule(static)
    for (long at = 0; at < p.samples * p.heads; ++at)
      for (long m = 0; m < p.queries; ++m) {
        const long from = (at / p.heads * p.queries + m) * row + at % p.heads * width;
        for (long i = 0; i < width; ++i)
          deltas[at * wide + m] += gradient[from + i] * out[from + i];
      }
  }
};

// The room of one thread: a block's weights and their gradients, and those of its keys and values.
struct Room {
  std::vector<float> weights, d_scores, d_key, d_value, found;
  long key_row, value_row;  // where values are narrow a row has a vector for each channel

  Room(const Problem& p, long panels)
      : weights(KEYS * PANEL),
        d_scores(KEYS * PANEL),
        found(panels * p.width * PANEL),
        key_row(padded(p.width, LANES)),
        value_row(p.value_width > NARROW ? padded(p.value_width, LANES) : p.value_width * LANES) {
    d_key.resize(KEYS * key_row);
    d_value.resize(KEYS * value_row);
  }

  void start() {
    std::fill(d_key.begin(), d_key.end(), 0.0f);
    std::fill(d_value.begin(), d_value.end(), 0.0f);
  }

  // From scores in `weights` to weights, and to the gradients of the scores. The products of
  // values with gradients are in `d_scores` already, or are computed here where values are narrow.
  void differentiate(const Problem& p, const float* values, const float* gradients,
                     const float* logs, const float* deltas, long seen, const uint8_t* real) {
    const bool narrow = p.value_width <= NARROW;
    for (int v = 0; v < PANEL; v += LANES) {
      const Vec log = load(logs + v), delta = load(deltas + v);
      for (long r = 0; r < seen; ++r) {
        Vec weight = exp2(load(&weights[r * PANEL + v]) - log);
        if (real && !real[r]) weight = Vec{};
        Vec d_weight{};
        if (narrow) {
          for (long i = 0; i < p.value_width; ++i) {
            const Vec gradient = load(gradients + i * PANEL + v);
            d_weight += all(values[r * p.value.row + i]) * gradient;
            float* place = &d_value[r * value_row + i * LANES];
            store(place, load(place) + weight * gradient);
          }
        } else {
          d_weight = load(&d_scores[r * PANEL + v]);
          store(&weights[r * PANEL + v], weight);
        }
        store(&d_scores[r * PANEL + v], weight * (d_weight - delta));
      }
    }
  }

  // Write the gradients of a block's keys and values down.
  void leave(const Problem& p, long b, long n, long seen, long head, Place d_keys,
             Place d_values) const {
    for (long r = 0; r < seen; ++r) {
      float* key = d_keys.at(b, n + r, head * p.width);
      for (long i = 0; i < p.width; ++i) key[i] = d_key[r * key_row + i] * p.scale;
      float* value = d_values.at(b, n + r, head * p.value_width);
      for (long i = 0; i < p.value_width; ++i)
        value[i] = p.value_width > NARROW ? d_value[r * value_row + i]
                                          : sum(load(&d_value[r * value_row + i * LANES]));
    }
  }
};

// One block of keys, and some panels of queries; `found` takes the gradients of these, transposed.
void differentiate_block(const Problem& p, const Asked& asked, Room& room, long b, long head,
                         long n, long seen, long first, long last, float* found) {
  const long panels = asking(p).panels(), width = p.value_width;
  const long at = b * p.heads + head, from = (b % p.query_samples) * p.heads + head;
  const float* key = p.key.at(b, n, head * p.width);
  const float* value = p.value.at(b, n, head * width);
  const uint8_t* real = p.mask ? p.mask + b * p.keys + n : nullptr;
  float *weights = room.weights.data(), *d_scores = room.d_scores.data();
  room.start();
  for (long panel = first; panel < last; ++panel) {
    const long place = (at * panels + panel) * PANEL, query = (from * panels + panel) * PANEL;
    const float* gradients = asked.gradients.data() + place * width;
    product<VECTORS, false>(seen, p.width, {key, p.key.row, 1},
                            asked.queries.data() + query * p.width, PANEL, weights, PANEL);
    if (width > NARROW)
      product<VECTORS, false>(seen, width, {value, p.value.row, 1}, gradients, PANEL, d_scores,
                              PANEL);
    room.differentiate(p, value, gradients, asked.logs.data() + place, asked.deltas.data() + place,
                       seen, real);
    if (width > NARROW)
      add_product(seen, room.value_row, PANEL, {weights, PANEL, 1},
                  asked.gradient_rows.data() + place * room.value_row, room.value_row,
                  room.d_value.data(), room.value_row);
    add_product(seen, room.key_row, PANEL, {d_scores, PANEL, 1},
                asked.query_rows.data() + query * room.key_row, room.key_row, room.d_key.data(),
                room.key_row);
    product<VECTORS, true>(p.width, seen, {key, 1, p.key.row}, d_scores, PANEL,
                           found + (panel - first) * p.width * PANEL, PANEL);
  }
}

// The gradients of queries (query_samples, queries, heads * width), of keys and of values, these
// with rows and samples at any distance. `out` and `lse` may be those of more keys than these.
//
// The longer side is shared out. Where that is the queries, a piece of work takes all samples that
// ask the same, and leaves a part of the gradients of keys and values; else, of the queries.
void differentiate(const Problem& p, const float* gradient, const float* out, const float* lse,
                   float* d_query, Place d_key, Place d_value) {
  const Asked asked(p, gradient, out, lse);
  const bool many = p.queries > p.keys;
  const long panels = asking(p).panels(), key_row = p.heads * p.width;
  const long value_row = p.heads * p.value_width, query_size = p.queries * key_row;
  const long part = many ? p.samples * p.keys * (key_row + value_row) : p.samples * query_size;
  const long taken = share_of(many ? p.queries : p.keys, part);
  const long own = many ? taken / PANEL : panels;
  const long shares = pieces(many ? p.queries : p.keys, taken);
  const long askers = many ? p.query_samples : p.samples;
  const bool parted = !many && (shares > 1 || p.query_samples < p.samples);
  std::vector<float> query_parts(parted ? shares * p.samples * query_size : 0);
  std::vector<float> key_parts(many ? shares * p.samples * p.keys * key_row : 0);
  std::vector<float> value_parts(many ? shares * p.samples * p.keys * value_row : 0);
  Rooms<Room> rooms(p.threads, Room(p, own));
#pragma omp parallel num_threads(p.threads)
  {
    Room& room = rooms.own();
    std::vector<float>& found = room.found;
#pragma omp for schedule(dynamic)
    for (long work = 0; work < askers * p.heads * shares; ++work) {
      const long share = work % shares, head = work / shares % p.heads;
      const long asker = work / shares / p.heads;
      const long first = many ? share * own : 0, last = std::min(panels, first + own);
      const long begin = many ? 0 : share * taken;
      const long end = many ? p.keys : std::min(p.keys, begin + taken);
      Place keys = d_key, values = d_value;
      if (many) {
        keys = {key_parts.data() + share * p.samples * p.keys * key_row, p.keys * key_row, key_row};
        values = {value_parts.data() + share * p.samples * p.keys * value_row, p.keys * value_row,
                  value_row};
      }
      std::fill(found.begin(), found.end(), 0.0f);
      for (long b = asker; b < p.samples; b += askers)
        for (long n = begin; n < end; n += KEYS) {
          const long seen = std::min(KEYS, end - n);
          differentiate_block(p, asked, room, b, head, n, seen, first, last, found.data());
          room.leave(p, b, n, seen, head, keys, values);
        }
      float* to = parted ? query_parts.data() + (share * p.samples + asker) * query_size
                         : d_query + asker * query_size;
      for (long panel = first; panel < last; ++panel)
        for (long j = 0; j < std::min<long>(PANEL, p.queries - panel * PANEL); ++j)
          for (long i = 0; i < p.width; ++i)
            to[(panel * PANEL + j) * key_row + head * p.width + i] =
                found[((panel - first) * p.width + i) * PANEL + j] * p.scale;
    }
  }
  if (parted) {
    // By share, then by sample: where all samples ask the same, all parts are of one sum.
    const bool same = p.query_samples < p.samples;
    add_up(query_parts, same ? shares * p.samples : shares,
           same ? query_size : p.samples * query_size, d_query, p.threads);
  }
  if (many) {
    add_up(key_parts, shares, {p.samples, 1, p.keys, key_row}, d_key, p.threads);
    add_up(value_parts, shares, {p.samples, 1, p.keys, value_row}, d_value, p.threads);
  }
}

}  // namespace

// Both return 0, or 1 where there was not enough memory.
extern "C" int ipot_attend(const Problem* p, float* out, float* lse) {
  return attempt([&] { attend(*p, out, lse); });
}

extern "C" int ipot_attend_backward(const Problem* p, const float* gradient, const float* out,
                                    const float* lse, float* d_query, const Place* d_key,
                                    const Place* d_value) {
  return attempt([&] { differentiate(*p, gradient, out, lse, d_query, *d_key, *d_value); });
}
