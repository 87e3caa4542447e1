// Quantities of batches of sequences: log Z, marginals, entropies with gradient. Each can be called
// with a Job, by anyone who knows C, and by XLA under a name that ends in _xla.

#include "entropy.h"
#include "forward_backward.h"
#include "xla.h"

// 0, or 1 where there is no memory.

extern "C" int jaxseq_forward(const Job *job) { return run(job, forward_of, 2, 0, 0); }

extern "C" int jaxseq_marginals(const Job *job) { return run(job, marginals_of, 3, 1, 1); }

extern "C" int jaxseq_entropy(const Job *job) { return run(job, entropy_of, 5, 2, 2); }

static Job read_job(const xla::Call *call) {
  xla::Buffer **arguments = call->arguments.buffers, **results = call->results.buffers;
  const int64_t *dims = arguments[0]->dims;
  Job job;
  job.rows = dims[0], job.slots = dims[1], job.labels = dims[2];
  job.size = *(const int64_t *)call->attributes.values[0]->value;
  job.nodes = (const real *)arguments[0]->data;
  job.edges = (const real *)arguments[1]->data;
  job.segments = (const int32_t *)arguments[2]->data;
  job.weights = (const real *)arguments[3]->data;
  job.by_slot = (real *)results[0]->data;
  job.by_node = (real *)results[1]->data;
  job.by_edge = (real *)results[2]->data;
  job.certified = (uint8_t *)results[3]->data;
  return job;
}

static xla::Error *answer(const xla::Call *call, int quantity(const Job *)) {
  if (xla::is_question(call)) return NULL;
  // A later version may append members, but a frame that is smaller is none that we know.
  if (call->struct_size < sizeof(xla::Call) || call->arguments.size != 4 ||
      call->results.size != 4 || call->attributes.size != 1)
    return xla::refuse(call, xla::INVALID_ARGUMENT, "jaxseq: expected four arguments and results");
  Job job = read_job(call);
  if (quantity(&job))
    return xla::refuse(call, xla::RESOURCE_EXHAUSTED,
                       "no memory for the lattice of a group of rows");
  return NULL;
}

extern "C" xla::Error *jaxseq_forward_xla(const xla::Call *call) {
  return answer(call, jaxseq_forward);
}

extern "C" xla::Error *jaxseq_marginals_xla(const xla::Call *call) {
  return answer(call, jaxseq_marginals);
}

extern "C" xla::Error *jaxseq_entropy_xla(const xla::Call *call) {
  return answer(call, jaxseq_entropy);
}
