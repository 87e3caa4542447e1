// What XLA hands to a function that it calls, by the interface in its own header.

#ifndef JAXSEQ_XLA_H
#define JAXSEQ_XLA_H

#include "xla/ffi/api/c_api.h"

// Before the first call XLA asks which version of the interface a function was compiled for.
static inline int is_question(const XLA_FFI_CallFrame *frame) {
  // `auto`, since jaxlib 0.11.1 renamed the type of this struct; its members are the same.
  auto *extension = frame->extension_start;
  while (extension && extension->type != XLA_FFI_Extension_Metadata) extension = extension->next;
  if (!extension) return 0;
  XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

static inline XLA_FFI_Buffer *argument(const XLA_FFI_CallFrame *frame, int number) {
  return (XLA_FFI_Buffer *)frame->args.args[number];
}

static inline XLA_FFI_Buffer *result(const XLA_FFI_CallFrame *frame, int number) {
  return (XLA_FFI_Buffer *)frame->rets.rets[number];
}

// The one attribute, a whole number.
static inline long attribute(const XLA_FFI_CallFrame *frame) {
  return *(int64_t *)((XLA_FFI_Scalar *)frame->attrs.attrs[0])->value;
}

static inline XLA_FFI_Error *refuse(const XLA_FFI_CallFrame *frame, const char *why) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, why,
                                    XLA_FFI_Error_Code_RESOURCE_EXHAUSTED};
  return frame->api->XLA_FFI_Error_Create(&args);
}

#endif
