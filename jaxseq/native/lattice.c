// Forward–backward in scaled space, as in jaxseq/batch/_scaled.py, and the entropy lattices of
// jaxseq/batch/_scaled_entropy.py, for groups of rows: a lane of a vector is a row. Everything of a
// group stays in a core's cache.
//
// Forward messages are kept before they are divided by their sums, which the next step takes with
// it and which cancel in marginals.

#include "products.h"
#include "xla.h"

enum { CHUNK = 24 };  // slots whose messages stay in the innermost cache while pairs are counted

typedef struct {
  long rows, slots, labels, size;  // size: rows of a block, a multiple of LANES or all
  const real *nodes, *edges, *weights;
  const int32_t *segments;
  real *by_slot, *by_node, *by_edge;  // [rows, slots], [rows, slots, labels], [blocks, labels²]
  uint8_t *certified;                 // [blocks]
} Job;

// exp(edges − top) and its transpose, and −E log E and its transpose.
typedef struct {
  real top, *ahead, *back, *surprise_ahead, *surprise_back;
} Edges;

static Edges factorise_edges(const Job *job, real *memory) {
  long s = job->labels;
  Edges edges = {-INFINITY, memory, memory + s * s, memory + 2 * s * s, memory + 3 * s * s};
  for (long k = 0; k < s * s; k++) edges.top = fmax(edges.top, job->edges[k]);
  if (edges.top == -INFINITY) edges.top = 0;
  for (long i = 0; i < s; i++)
    for (long j = 0; j < s; j++) {
      real lower = job->edges[i * s + j] - edges.top, factor = SINGLE ? expf(lower) : exp(lower);
      real surprise = factor > 0 ? -lower * factor : 0;
      edges.ahead[i * s + j] = edges.back[j * s + i] = factor;
      edges.surprise_ahead[i * s + j] = edges.surprise_back[j * s + i] = surprise;
    }
  return edges;
}

// Rows of a group: where they begin, how many there are, and what is known of their slots.
typedef struct {
  long first;
  int here;
  mask *valid, *linked;  // linked[slots]: none
  vec *weights, *tops;
} Group;

static void look_at_slots(const Job *job, Group *group) {
  long n = job->slots;
  for (long t = 0; t < n; t++)
    for (int l = 0; l < LANES; l++) {
      const int32_t *row = job->segments + (group->first + (l < group->here ? l : 0)) * n;
      int is_valid = l < group->here && row[t] >= 0;
      group->valid[t][l] = -is_valid;
      group->linked[t][l] = -(is_valid && t > 0 && row[t] == row[t - 1]);
    }
  group->linked[n] = (mask)fill(0);
}

// exp(nodes − top) in place of nodes: not less than the smallest number where it is legal, so that
// it is not taken for forbidden, 0 where not. `surprises`, if wanted: top − nodes.
static void factorise(const Job *job, Group *group, vec *nodes, vec *surprises) {
  long n = job->slots, s = job->labels;
  gather_rows(job->nodes + group->first * n * s, n * s, group->here, n * s, nodes);
  for (long t = 0; t < n; t++) {
    vec *here = nodes + t * s, top = fill(-INFINITY);
    mask valid = group->valid[t];
    for (long j = 0; j < s; j++) top = larger(here[j], top);
    top = choose((top > -INFINITY) & valid, top, fill(0));
    for (long j = 0; j < s; j++) {
      vec lower = here[j] - top;
      mask legal = (here[j] > -INFINITY) & valid;
      here[j] = choose(legal, exp_of(lower), fill(0));
      if (surprises) surprises[t * s + j] = choose(legal, -lower, fill(0));
    }
    group->tops[t] = top;
  }
}

// Below it, what was lost to underflow might matter; see smallest_trusted in _engines.py.
static real smallest_trusted(void) { return SINGLE ? 0x1p-97 : 0x1p-964; }

// What a slot adds to log Z; 0 on padding.
static vec increment(const Group *group, long t, vec total, real edge_top) {
  vec tops = group->tops[t] + choose(group->linked[t], fill(edge_top), fill(0));
  vec logarithm = choose(total > 0, log_of(total), fill(-INFINITY));
  return choose(group->valid[t], logarithm + tops, fill(0));
}

// The smallest legal message so far, and 0 where a valid slot has no legal label.
static vec watch(vec lowest, vec value, mask legal) {
  return smaller(lowest, choose(legal, value, fill(1)));
}

static vec run_ahead(const Job *job, const Group *group, const Edges *edges, const vec *factors,
                     vec *ahead, vec *increments) {
  long n = job->slots, s = job->labels;
  vec scale = fill(1), lowest = fill(1);
  for (long t = 0; t < n; t++) {
    vec *here = ahead + t * s, total = fill(0);
    const vec *factor = factors + t * s;
    mask linked = group->linked[t];
    if (any(linked)) {
      multiply(edges->ahead, s, here - s, here);
      for (long j = 0; j < s; j++) {
        mask legal = factor[j] > 0;
        lowest = watch(lowest, here[j], legal & linked);
        vec message = choose(linked, here[j] * scale, fill(1)) * factor[j];
        lowest = watch(lowest, message, legal);
        total += here[j] = message;
      }
    } else {
      for (long j = 0; j < s; j++) {
        lowest = watch(lowest, factor[j], factor[j] > 0);
        total += here[j] = factor[j];
      }
    }
    lowest = watch(lowest, total, group->valid[t]);
    scale = inverse(total);
    increments[t] = increment(group, t, total, edges->top);
  }
  return lowest;
}

// Marginals from forward messages; these become shares of pairs, and factors e ⊙ β.
static vec run_back(const Job *job, const Group *group, const Edges *edges, vec *factors,
                    vec *ahead, vec *marginals, vec *raw) {
  long n = job->slots, s = job->labels;
  vec lowest = fill(1);
  for (long t = n - 1; t >= 0; t--) {
    vec *alpha = ahead + t * s, *factor = factors + t * s, *marginal = marginals + t * s;
    vec total = fill(0), top = fill(0);
    mask linked = group->linked[t + 1];
    if (any(linked)) multiply(edges->back, s, factor + s, raw);
    for (long i = 0; i < s; i++) {
      raw[i] = choose(linked, raw[i], fill(1));
      lowest = watch(lowest, raw[i], alpha[i] > 0);
      top = larger(top, raw[i]);
      total += marginal[i] = alpha[i] * raw[i];
    }
    lowest = watch(lowest, total, group->valid[t]);
    vec scale = inverse(total), share = choose(linked, scale * group->weights[t], fill(0));
    vec over_top = inverse(top);
    for (long i = 0; i < s; i++) {
      marginal[i] *= scale;
      alpha[i] *= share;
      factor[i] *= raw[i] * over_top;
    }
  }
  return lowest;
}

// All groups. What differs is what is done with one, and how many vectors a slot's label and a
// label take for that.
typedef vec Work(const Job *, Group *, const Edges *, vec *memory, vec *sums);

static XLA_FFI_Error *run(const XLA_FFI_CallFrame *frame, const Job *job, Work *work,
                          long per_node, long per_label, long sums_of_pairs) {
  long n = job->slots, s = job->labels, pairs = sums_of_pairs * s * s;
  size_t vectors = n * s * per_node + s * per_label + pairs + 4 * n + 1;
  char *memory = NULL;
  if (posix_memalign((void **)&memory, 64, vectors * sizeof(vec) + 4 * s * s * sizeof(real) + 64))
    return refuse(frame, "no memory for the lattice of a group of rows");
  vec *sums = (vec *)memory, *work_memory = sums + pairs;
  vec *rest = work_memory + n * s * per_node + s * per_label;
  Group group = {0, 0, (mask *)rest, (mask *)(rest + n), rest + 2 * n + 1, rest + 3 * n + 1};
  Edges edges = factorise_edges(job, (real *)(rest + 4 * n + 1));
  long blocks = (job->rows + job->size - 1) / job->size;
  for (long block = 0; block < blocks; block++) {
    long end = (block + 1) * job->size < job->rows ? (block + 1) * job->size : job->rows;
    vec lowest = fill(1);
    for (long k = 0; k < pairs; k++) sums[k] = fill(0);
    for (group.first = block * job->size; group.first < end; group.first += LANES) {
      group.here = end - group.first < LANES ? end - group.first : LANES;
      look_at_slots(job, &group);
      if (job->weights)
        gather_rows(job->weights + group.first * n, n, group.here, n, group.weights);
      lowest = smaller(lowest, work(job, &group, &edges, work_memory, sums));
    }
    real *found = job->by_edge + block * s * s;
    for (long k = 0; pairs && k < s * s; k++) {
      found[k] = edges.ahead[k] * sum_of(sums[k]);
      if (sums_of_pairs == 2)
        found[k] = edges.ahead[k] * sum_of(sums[s * s + k]) +
                   edges.surprise_ahead[k] * sum_of(sums[k]);
    }
    job->certified[block] = least_of(lowest) >= smallest_trusted();
  }
  free(memory);
  return NULL;
}

static vec forward_of(const Job *job, Group *group, const Edges *edges, vec *memory, vec *sums) {
  long n = job->slots, s = job->labels;
  vec *factors = memory, *ahead = factors + n * s, *increments = group->weights;
  factorise(job, group, factors, NULL);
  vec lowest = run_ahead(job, group, edges, factors, ahead, increments);
  scatter_rows(increments, n, job->by_slot + group->first * n, n, group->here);
  return lowest;
}

static vec marginals_of(const Job *job, Group *group, const Edges *edges, vec *memory, vec *sums) {
  long n = job->slots, s = job->labels;
  vec *factors = memory, *ahead = factors + n * s, *marginals = ahead + n * s;
  vec *raw = marginals + n * s;
  factorise(job, group, factors, NULL);
  vec lowest = run_ahead(job, group, edges, factors, ahead, group->tops);
  scatter_rows(group->tops, n, job->by_slot + group->first * n, n, group->here);
  lowest = smaller(lowest, run_back(job, group, edges, factors, ahead, marginals, raw));
  scatter_rows(marginals, n * s, job->by_node + group->first * n * s, n * s, group->here);
  for (long t = 0; t < n - 1; t += CHUNK)
    count(t + CHUNK < n ? CHUNK : n - 1 - t, s, ahead + t * s, factors + (t + 1) * s, sums);
  return lowest;
}

// ------------------------------------------------------------------------------- what XLA calls

static Job job_of(const XLA_FFI_CallFrame *frame) {
  const XLA_FFI_Buffer *nodes = argument(frame, 0);
  return (Job){nodes->dims[0],          nodes->dims[1],         nodes->dims[2],
               attribute(frame),        nodes->data,            argument(frame, 1)->data,
               argument(frame, 3)->data, argument(frame, 2)->data, result(frame, 0)->data,
               result(frame, 1)->data,  result(frame, 2)->data, result(frame, 3)->data};
}

XLA_FFI_Error *jaxseq_forward(XLA_FFI_CallFrame *frame) {
  if (is_question(frame)) return NULL;
  Job job = job_of(frame);
  return run(frame, &job, forward_of, 2, 0, 0);
}

XLA_FFI_Error *jaxseq_marginals(XLA_FFI_CallFrame *frame) {
  if (is_question(frame)) return NULL;
  Job job = job_of(frame);
  return run(frame, &job, marginals_of, 3, 1, 1);
}
