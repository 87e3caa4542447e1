// Quantities of batches of sequences, for XLA to call: log Z, marginals, entropies with gradient.

#include "entropy.h"
#include "forward_backward.h"

static Job read_job(const XLA_FFI_CallFrame *frame) {
  const XLA_FFI_Buffer *nodes = argument(frame, 0);
  Job job;
  job.rows = nodes->dims[0], job.slots = nodes->dims[1], job.labels = nodes->dims[2];
  job.size = attribute(frame);
  job.nodes = (const real *)nodes->data;
  job.edges = (const real *)argument(frame, 1)->data;
  job.segments = (const int32_t *)argument(frame, 2)->data;
  job.weights = (const real *)argument(frame, 3)->data;
  job.by_slot = (real *)result(frame, 0)->data;
  job.by_node = (real *)result(frame, 1)->data;
  job.by_edge = (real *)result(frame, 2)->data;
  job.certified = (uint8_t *)result(frame, 3)->data;
  return job;
}

extern "C" XLA_FFI_Error *jaxseq_forward(XLA_FFI_CallFrame *frame) {
  if (is_question(frame)) return NULL;
  Job job = read_job(frame);
  return run(frame, &job, forward_of, 2, 0, 0);
}

extern "C" XLA_FFI_Error *jaxseq_marginals(XLA_FFI_CallFrame *frame) {
  if (is_question(frame)) return NULL;
  Job job = read_job(frame);
  return run(frame, &job, marginals_of, 3, 1, 1);
}

extern "C" XLA_FFI_Error *jaxseq_entropy(XLA_FFI_CallFrame *frame) {
  if (is_question(frame)) return NULL;
  Job job = read_job(frame);
  return run(frame, &job, entropy_of, 5, 2, 2);
}
