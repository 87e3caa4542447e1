// Vectors of 64 bytes, by the extension that GCC and Clang share: whatever the processor has
// narrower registers for, the compiler splits. One lane is one row of a batch.
//
// Set REAL to float or double before.

#ifndef REAL
#error "REAL is not defined"
#endif

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef REAL real;
enum { LANES = 64 / sizeof(real) };
typedef real vec __attribute__((vector_size(64)));
#define IS_SINGLE (sizeof(real) == 4)
