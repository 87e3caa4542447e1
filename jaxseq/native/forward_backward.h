// Forward–backward in scaled space, as in jaxseq/lattice/_scaled.py: what is certified there may be
// believed here too.

#ifndef JAXSEQ_FORWARD_BACKWARD_H
#define JAXSEQ_FORWARD_BACKWARD_H

#include "groups.h"

static vec run_ahead(const Job *job, const Group *group, const Edges *edges, const vec *factors,
                     vec *ahead, vec *increments) {
  long n = job->slots, s = job->labels;
  vec lowest = fill(1);
  for (long t = 0; t < n; t++) {
    vec *here = ahead + t * s, total = fill(0);
    const vec *factor = factors + t * s;
    mask linked = group->linked[t];
    announce(job, job->nodes, group->first + LANES, t, 0);
    if (any(linked)) multiply(edges->ahead, s, here - s, here);
    for (long j = 0; j < s; j++) {
      vec message = choose(linked, here[j], fill(1)) * factor[j];
      lowest = watch(lowest, message, factor[j] > 0);
      total += here[j] = message;
    }
    lowest = watch(lowest, total, group->valid[t]);
    vec scale = inverse(total);
    for (long j = 0; j < s; j++) here[j] *= scale;
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
    announce(job, job->by_node, group->first, t, 1);
    if (any(linked)) multiply(edges->back, s, factor + s, raw);
    for (long i = 0; i < s; i++) {
      raw[i] = choose(linked, raw[i], fill(1));
      lowest = watch(lowest, raw[i], alpha[i] > 0);
      top = larger(top, raw[i]);
      total += alpha[i] * raw[i];
    }
    lowest = watch(lowest, total, group->valid[t]);
    vec scale = inverse(total), share = choose(linked, scale * group->weights[t], fill(0));
    vec over_top = inverse(top);
    for (long i = 0; i < s; i++) {
      marginal[i] = alpha[i] * scale * raw[i];  // in this order nothing underflows early
      alpha[i] *= share;
      factor[i] *= raw[i] * over_top;
    }
  }
  return lowest;
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

#endif
