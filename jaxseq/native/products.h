// Small matrix products on vectors whose lanes are rows of a batch. Results are computed in tiles:
// as many sums as registers hold beside their operands.

#ifndef JAXSEQ_PRODUCTS_H
#define JAXSEQ_PRODUCTS_H

#include "vectors.h"

#define INLINE inline __attribute__((always_inline))

#ifdef __AVX512F__
static const int WIDE = 8, SQUARE = 5;
#else
static const int WIDE = 4, SQUARE = 2;
#endif

// do_tile<width> for the width at hand, `most` at most.
template <template <int> class Tile, int most, class... Args>
static INLINE void do_tile(long width, Args... args) {
  if (width == most)
    Tile<most>::run(args...);
  else if constexpr (most > 1)
    do_tile<Tile, most - 1>(width, args...);
}

template <int width>
struct Multiply {
  static INLINE void run(const real *matrix, long s, const vec *in, vec *out) {
    vec sums[width];
    for (int k = 0; k < width; k++) sums[k] = fill(0);
    for (long i = 0; i < s; i++)
      for (int k = 0; k < width; k++) sums[k] += matrix[i * s + k] * in[i];
    for (int k = 0; k < width; k++) out[k] = sums[k];
  }
};

// out[j] = Σ_i matrix[i][j] in[i]
static inline void multiply(const real *matrix, long s, const vec *in, vec *out) {
  for (long j = 0; j < s; j += WIDE)
    do_tile<Multiply, WIDE>(s - j < WIDE ? s - j : WIDE, matrix + j, s, in, out + j);
}

template <int width>
struct MultiplyPair {
  static INLINE void run(const real *matrix, const real *other, long s, const vec *in_first,
                  const vec *in_second, vec *first, vec *second) {
    vec sums[width], others[width];
    for (int k = 0; k < width; k++) sums[k] = others[k] = fill(0);
    for (long i = 0; i < s; i++)
      for (int k = 0; k < width; k++) {
        sums[k] += matrix[i * s + k] * in_first[i];
        others[k] += matrix[i * s + k] * in_second[i];
        others[k] += other[i * s + k] * in_first[i];
      }
    for (int k = 0; k < width; k++) first[k] = sums[k], second[k] = others[k];
  }
};

// first[j] = Σ_i matrix[i][j] in_first[i]
// second[j] = Σ_i matrix[i][j] in_second[i] + other[i][j] in_first[i]
static inline void multiply_pair(const real *matrix, const real *other, long s,
                                 const vec *in_first, const vec *in_second, vec *first,
                                 vec *second) {
  for (long j = 0; j < s; j += WIDE)
    do_tile<MultiplyPair, WIDE>(s - j < WIDE ? s - j : WIDE, matrix + j, other + j, s, in_first,
                                in_second, first + j, second + j);
}

template <int high>
struct CountHigh {
  template <int wide>
  struct Count {
    static INLINE void run(long slots, long s, const vec *left, const vec *right, vec *sums) {
      vec held[high][wide];
      for (int a = 0; a < high; a++)
        for (int b = 0; b < wide; b++) held[a][b] = sums[a * s + b];
      for (long t = 0; t < slots; t++)
        for (int a = 0; a < high; a++)
          for (int b = 0; b < wide; b++) held[a][b] += left[t * s + a] * right[t * s + b];
      for (int a = 0; a < high; a++)
        for (int b = 0; b < wide; b++) sums[a * s + b] = held[a][b];
    }
  };

  static void run(long slots, long s, const vec *left, const vec *right, vec *sums) {
    for (long j = 0; j < s; j += SQUARE)
      do_tile<Count, SQUARE>(s - j < SQUARE ? s - j : SQUARE, slots, s, left, right + j, sums + j);
  }
};

// sums[i][j] += Σ_t left[t][i] right[t][j], lane by lane.
static inline void count(long slots, long s, const vec *left, const vec *right, vec *sums) {
  for (long i = 0; i < s; i += SQUARE)
    do_tile<CountHigh, SQUARE>(s - i < SQUARE ? s - i : SQUARE, slots, s, left + i, right,
                               sums + i * s);
}

#endif
