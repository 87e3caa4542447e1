// Entropy and its gradient in scaled space, as in jaxseq/lattice/_scaled.py, where the
// recursions of X = Hα − log α and Y = Hβ − log β are derived.

#ifndef JAXSEQ_ENTROPY_H
#define JAXSEQ_ENTROPY_H

#include "groups.h"

// Of every slot and label: α, α ⊙ X, e, v = top − node, and the gradient. Of every label: what a
// product gives.
typedef struct {
  vec *alpha, *alpha_seen, *factors, *surprises, *gradient, *raw, *coming;
} Lattice;

static vec entropy_ahead(const Job *job, const Group *group, const Edges *edges, Lattice *at) {
  long n = job->slots, s = job->labels;
  vec lowest = fill(1);
  for (long t = 0; t < n; t++) {
    vec *alpha = at->alpha + t * s, *seen = at->alpha_seen + t * s, total = fill(0);
    const vec *factor = at->factors + t * s, *surprise = at->surprises + t * s;
    mask linked = group->linked[t];
    announce(job, job->nodes, group->first + LANES, t, 0);
    if (any(linked))
      multiply_pair(edges->ahead, edges->surprise_ahead, s, alpha - s, seen - s, alpha, seen);
    for (long j = 0; j < s; j++) {
      seen[j] = choose(linked, seen[j] * inverse(alpha[j]), fill(0)) + surprise[j];
      vec message = choose(linked, alpha[j], fill(1)) * factor[j];
      lowest = watch(lowest, message, factor[j] > 0);
      total += alpha[j] = message;
    }
    lowest = watch(lowest, total, group->valid[t]);
    vec scale = inverse(total), log_total = log_of(total);
    for (long j = 0; j < s; j++) {
      alpha[j] *= scale;
      seen[j] = alpha[j] * (seen[j] + log_total);
    }
  }
  return lowest;
}

// The gradient by nodes. α becomes the share of pairs and α ⊙ X what the gradient by edges needs;
// e becomes e ⊙ β, and v that times (Y + v). `entropies` holds those of sequences that begin at a
// slot, and 0 elsewhere.
static vec entropy_back(const Job *job, const Group *group, const Edges *edges, Lattice *at,
                        vec *entropies) {
  long n = job->slots, s = job->labels;
  vec lowest = fill(1), *raw = at->raw, *coming = at->coming;
  for (long t = n - 1; t >= 0; t--) {
    vec *alpha = at->alpha + t * s, *seen = at->alpha_seen + t * s;
    vec *factor = at->factors + t * s, *surprise = at->surprises + t * s;
    vec *gradient = at->gradient + t * s, total = fill(0), top = fill(0), mean = fill(0);
    mask linked = group->linked[t + 1];
    announce(job, job->by_node, group->first, t, 1);
    if (any(linked))
      multiply_pair(edges->back, edges->surprise_back, s, factor + s, surprise + s, raw, coming);
    for (long i = 0; i < s; i++) {
      coming[i] = choose(linked, coming[i] * inverse(raw[i]), fill(0));
      raw[i] = choose(linked, raw[i], fill(1));
      lowest = watch(lowest, raw[i], alpha[i] > 0);
      top = larger(top, raw[i]);
      vec both = alpha[i] * raw[i];
      total += both;
      mean += seen[i] * raw[i] + both * coming[i];
    }
    lowest = watch(lowest, total, group->valid[t]);
    vec scale = inverse(total), over_top = inverse(top), log_top = log_of(top);
    vec share = choose(linked, scale * group->weights[t], fill(0));
    mean *= scale;
    for (long i = 0; i < s; i++) {
      vec node = alpha[i] * scale * raw[i];
      gradient[i] = seen[i] * scale * raw[i] + node * (coming[i] - mean);
      seen[i] = share * (seen[i] - alpha[i] * mean);
      alpha[i] *= share;
      factor[i] *= raw[i] * over_top;
      surprise[i] = factor[i] * (coming[i] + log_top + surprise[i]);
    }
    mask begins = group->valid[t] & ~group->linked[t];
    entropies[t] = choose(begins, mean + log_of(total), fill(0));
  }
  return lowest;
}

static vec entropy_of(const Job *job, Group *group, const Edges *edges, vec *memory, vec *sums) {
  long n = job->slots, s = job->labels, size = n * s;
  vec *labels = memory + 5 * size;
  Lattice at = {memory,            memory + size, memory + 2 * size, memory + 3 * size,
                memory + 4 * size, labels,        labels + s};
  factorise(job, group, at.factors, at.surprises);
  vec lowest = entropy_ahead(job, group, edges, &at);
  lowest = smaller(lowest, entropy_back(job, group, edges, &at, group->weights));
  scatter_rows(group->weights, n, job->by_slot + group->first * n, n, group->here);
  scatter_rows(at.gradient, size, job->by_node + group->first * size, size, group->here);
  for (long t = 0; t < n - 1; t += CHUNK) {
    long slots = t + CHUNK < n ? CHUNK : n - 1 - t, here = t * s, after = (t + 1) * s;
    count(slots, s, at.alpha + here, at.factors + after, sums);
    count(slots, s, at.alpha + here, at.surprises + after, sums + s * s);
    count(slots, s, at.alpha_seen + here, at.factors + after, sums + s * s);
  }
  return lowest;
}

#endif
