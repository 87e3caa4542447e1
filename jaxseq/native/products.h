// Small matrix products on vectors whose lanes are rows of a batch.

#ifndef JAXSEQ_PRODUCTS_H
#define JAXSEQ_PRODUCTS_H

#include "vectors.h"

#define INLINE static inline __attribute__((always_inline))

// As many sums as registers hold beside their operands.
#ifdef __AVX512F__
enum { WIDE = 8, SQUARE = 5 };
#else
enum { WIDE = 4, SQUARE = 2 };
#endif

INLINE void multiply_tile(int width, const real *matrix, long s, const vec *in, vec *out) {
  vec sums[WIDE];
  for (int k = 0; k < width; k++) sums[k] = fill(0);
  for (long i = 0; i < s; i++)
    for (int k = 0; k < width; k++) sums[k] += matrix[i * s + k] * in[i];
  for (int k = 0; k < width; k++) out[k] = sums[k];
}

// out[j] = Σ_i matrix[i][j] in[i]
static inline void multiply(const real *matrix, long s, const vec *in, vec *out) {
  long j = 0;
  for (; j + WIDE <= s; j += WIDE) multiply_tile(WIDE, matrix + j, s, in, out + j);
  switch (s - j) {
#define CASE(n) case n: multiply_tile(n, matrix + j, s, in, out + j); break;
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
#undef CASE
  }
}

// second[j] = Σ_i matrix[i][j] in_second[i] + surprise[i][j] in_first[i], beside the first.
INLINE void multiply_pair_tile(int width, const real *matrix, const real *surprise, long s,
                               const vec *in_first, const vec *in_second, vec *first,
                               vec *second) {
  vec sums[WIDE], others[WIDE];
  for (int k = 0; k < width; k++) sums[k] = others[k] = fill(0);
  for (long i = 0; i < s; i++)
    for (int k = 0; k < width; k++) {
      sums[k] += matrix[i * s + k] * in_first[i];
      others[k] += matrix[i * s + k] * in_second[i];
      others[k] += surprise[i * s + k] * in_first[i];
    }
  for (int k = 0; k < width; k++) first[k] = sums[k], second[k] = others[k];
}

static inline void multiply_pair(const real *matrix, const real *surprise, long s,
                                 const vec *in_first, const vec *in_second, vec *first,
                                 vec *second) {
  long j = 0;
  for (; j + WIDE <= s; j += WIDE)
    multiply_pair_tile(WIDE, matrix + j, surprise + j, s, in_first, in_second, first + j,
                       second + j);
  switch (s - j) {
#define CASE(n)                                                                                \
  case n:                                                                                      \
    multiply_pair_tile(n, matrix + j, surprise + j, s, in_first, in_second, first + j,         \
                       second + j);                                                            \
    break;
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
#undef CASE
  }
}

INLINE void count_tile(int high, int wide, long slots, long s, const vec *left, const vec *right,
                       vec *sums) {
  vec held[SQUARE][SQUARE];
  for (int a = 0; a < high; a++)
    for (int b = 0; b < wide; b++) held[a][b] = sums[a * s + b];
  for (long t = 0; t < slots; t++)
    for (int a = 0; a < high; a++)
      for (int b = 0; b < wide; b++) held[a][b] += left[t * s + a] * right[t * s + b];
  for (int a = 0; a < high; a++)
    for (int b = 0; b < wide; b++) sums[a * s + b] = held[a][b];
}

// sums[i][j] += Σ_t left[t][i] right[t][j], lane by lane.
static inline void count(long slots, long s, const vec *left, const vec *right, vec *sums) {
  for (long i = 0; i < s; i += SQUARE)
    for (long j = 0; j < s; j += SQUARE) {
      int high = s - i < SQUARE ? s - i : SQUARE, wide = s - j < SQUARE ? s - j : SQUARE;
      switch (high * 8 + wide) {
#define CASE(a, b) \
  case a * 8 + b: count_tile(a, b, slots, s, left + i, right + j, sums + i * s + j); break;
#define ROW(a) CASE(a, 1) CASE(a, 2) CASE(a, 3) CASE(a, 4) CASE(a, 5)
        CASE(1, 1) CASE(1, 2) CASE(2, 1) CASE(2, 2)
#ifdef __AVX512F__
        CASE(1, 3) CASE(1, 4) CASE(1, 5) CASE(2, 3) CASE(2, 4) CASE(2, 5)
        ROW(3) ROW(4) ROW(5)
#endif
#undef ROW
#undef CASE
      }
    }
}

#endif
