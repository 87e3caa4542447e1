// Batches cut into groups of rows, a row in each lane of a vector, and blocks of groups. Everything
// of a group stays in a core's cache.

#ifndef JAXSEQ_GROUPS_H
#define JAXSEQ_GROUPS_H

#include "products.h"

static const long CHUNK = 24;  // slots whose messages stay in the innermost cache while pairs are counted

// What callers hand over. Arrays are in C's order and need no more alignment than their numbers.
typedef struct {
  int64_t rows, slots, labels, size;  // size: rows of a block, a multiple of LANES or all
  const real *nodes, *edges;          // [rows, slots, labels], [labels, labels]
  const int32_t *segments;            // [rows, slots], the number of a slot's sequence, or −1
  const real *weights;                // [rows, slots], of pairs in sums; only `forward` needs none
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
  for (long k = 0; k < s * s; k++)
    if (job->edges[k] > edges.top) edges.top = job->edges[k];
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
  const int32_t *segments = job->segments + group->first * n;
  mask there, *number = group->linked;
  for (int l = 0; l < LANES; l++) there[l] = -(l < group->here);
  if (SINGLE)  // as wide as numbers
    gather_rows((const real *)segments, n, group->here, n, (vec *)number);
  else
    for (long t = 0; t < n; t++)
      for (int l = 0; l < LANES; l++) number[t][l] = segments[(l < group->here ? l : 0) * n + t];
  for (long t = n - 1; t >= 0; t--) {
    group->valid[t] = (number[t] >= 0) & there;
    number[t] = t > 0 ? (number[t] == number[t - 1]) & group->valid[t] : there & 0;
  }
  group->linked[n] = there & 0;
}

// exp(nodes − top) in place of nodes: not less than the smallest number where it is legal, so that
// it is not taken for forbidden, 0 where not, and NaN stays NaN. `surprises`, if wanted: top − nodes.
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
      mask legal = (here[j] != -INFINITY) & valid;
      here[j] = choose(legal, choose(here[j] == here[j], exp_of(lower), here[j]), fill(0));
      if (surprises) surprises[t * s + j] = choose(legal, -lower, fill(0));
    }
    group->tops[t] = top;
  }
}

// Slot t of other rows, asked for ahead of time: the rows of a group are far apart in memory, and
// waiting for them would take as long as forward–backward.
static void announce(const Job *job, const real *rows, long first, long t, int to_write) {
  long s = job->labels, stride = job->slots * s;
  long here = job->rows - first < LANES ? job->rows - first : LANES;
  for (long l = 0; l < here; l++) {
    const char *slot = (const char *)(rows + (first + l) * stride + t * s);
    for (size_t k = 0; k < s * sizeof(real); k += 64)
      to_write ? __builtin_prefetch(slot + k, 1, 2) : __builtin_prefetch(slot + k, 0, 2);
  }
}

// Below it, what was lost to underflow might matter; see smallest_trusted in jaxseq/lattice/_engines.py.
static real smallest_trusted(void) { return SINGLE ? 0x1p-97 : 0x1p-964; }

// What a slot adds to log Z; 0 on padding, and NaN stays NaN.
static vec increment(const Group *group, long t, vec total, real edge_top) {
  vec tops = group->tops[t] + choose(group->linked[t], fill(edge_top), fill(0));
  vec logarithm = choose(total > 0, log_of(total), choose(total == 0, fill(-INFINITY), total));
  return choose(group->valid[t], logarithm + tops, fill(0));
}

// The smallest legal message so far.
static vec watch(vec lowest, vec value, mask legal) {
#ifdef UNWATCHED
  return lowest;
#else
  return smaller(lowest, choose(legal, value, fill(1)));
#endif
}

// All groups. What differs is what is done with one, and how many vectors a slot's label and a
// label take for that.
typedef vec Work(const Job *, Group *, const Edges *, vec *memory, vec *sums);

static int run(const Job *job, Work *work, long per_node, long per_label, long sums_of_pairs) {
  long n = job->slots, s = job->labels, pairs = sums_of_pairs * s * s;
  size_t vectors = n * s * per_node + s * per_label + pairs + 4 * n + 1;
  void *memory = NULL;
  if (posix_memalign(&memory, 64, vectors * sizeof(vec) + 4 * s * s * sizeof(real))) return 1;
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
    real *by_edge = job->by_edge + block * s * s;
    for (long k = 0; pairs && k < s * s; k++) {
      by_edge[k] = edges.ahead[k] * sum_of(sums[k]);
      if (sums_of_pairs == 2)
        by_edge[k] = edges.ahead[k] * sum_of(sums[s * s + k]) +
                   edges.surprise_ahead[k] * sum_of(sums[k]);
    }
    job->certified[block] = least_of(lowest) >= smallest_trusted();
  }
  free(memory);
  return 0;
}

#endif
