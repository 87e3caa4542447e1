// How XLA calls a function of ours, declared by ourselves: the members that kernels read, and no
// more. XLA keeps this layout for libraries that say they know version 0.1 of its interface (jaxlib
// 0.6), so one compiled library serves all later versions, and compiling needs no headers of jaxlib.
// Where XLA one day refuses 0.1, it does so when a function is registered, and jaxseq goes on without.

#ifndef JAXSEQ_XLA_H
#define JAXSEQ_XLA_H

#include <stddef.h>
#include <stdint.h>

namespace xla {

enum { MAJOR = 0, MINOR = 1 };
enum { METADATA = 1 };            // the type of the extension that asks for the version
enum { EXECUTE = 3 };             // the stage of an ordinary call
enum { INVALID_ARGUMENT = 3, RESOURCE_EXHAUSTED = 8 };  // codes of errors

struct Error;

struct Extension {
  size_t struct_size;
  int type;
  Extension *next;
};

struct Version {
  size_t struct_size;
  Extension *extension;
  int major, minor;
};

struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata *metadata;
};

struct NewError {
  size_t struct_size;
  Extension *extension;
  const char *message;
  int code;
};

struct Interface {
  size_t struct_size;
  Extension *extension;
  Version version;
  const void *internal;
  Error *(*create_error)(NewError *);
};

struct Buffer {
  size_t struct_size;
  Extension *extension;
  int type;
  void *data;
  int64_t rank;
  int64_t *dims;
};

// Arguments, and results.
struct Buffers {
  size_t struct_size;
  Extension *extension;
  int64_t size;
  int *types;
  Buffer **buffers;
};

struct Scalar {
  int type;
  void *value;
};

struct Attributes {
  size_t struct_size;
  Extension *extension;
  int64_t size;
  int *types;
  const void **names;
  Scalar **values;
};

struct Call {
  size_t struct_size;
  Extension *extension;
  const Interface *api;
  void *context;
  int stage;
  Buffers arguments, results;
  Attributes attributes;
};

// Before the first call XLA asks which version of the interface a function was compiled for.
static inline bool is_question(const Call *call) {
  Extension *extension = call->extension;
  while (extension && extension->type != METADATA) extension = extension->next;
  if (!extension) return false;
  Metadata *metadata = ((MetadataExtension *)extension)->metadata;
  metadata->version.major = MAJOR;
  metadata->version.minor = MINOR;
  return true;
}

static inline Error *refuse(const Call *call, int code, const char *why) {
  NewError error = {offsetof(NewError, code) + sizeof(int), NULL, why, code};
  return call->api->create_error(&error);
}

}  // namespace xla

#endif
