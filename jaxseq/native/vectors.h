// Vectors of 64 bytes, by the extension that GCC and Clang share; where registers are narrower the
// compiler splits them. REAL is float or double, as the compiler is told. C++ for `where ? a : b`
// on vectors, of which C compilers make several instructions.

#ifndef JAXSEQ_VECTORS_H
#define JAXSEQ_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef REAL
#define REAL float
#endif

typedef REAL real;
static const int LANES = 64 / sizeof(real);
static const bool SINGLE = sizeof(real) == 4;
typedef real vec __attribute__((vector_size(64)));

// Integers as wide as the numbers: results of comparisons, and bits of numbers.
typedef __typeof__(((vec){0} > (vec){0})) mask;

static inline vec fill(real x) { return (vec){0} + x; }

static inline vec choose(mask where, vec yes, vec no) { return where ? yes : no; }
static inline vec larger(vec a, vec b) { return a > b ? a : b; }
static inline vec smaller(vec a, vec b) { return a < b ? a : b; }

// 1 / x, and 0 where x is 0.
static inline vec inverse(vec x) {
  mask is_positive = x > 0;
  return choose(is_positive, 1 / choose(is_positive, x, fill(1)), fill(0));
}

static inline int any(mask m) {
  int some = 0;
  for (int k = 0; k < LANES; k++) some |= m[k] != 0;
  return some;
}

static inline real sum_of(vec x) {
  real total = 0;
  for (int k = 0; k < LANES; k++) total += x[k];
  return total;
}

static inline real least_of(vec x) {
  real least = x[0];
  for (int k = 1; k < LANES; k++) least = x[k] < least ? x[k] : least;
  return least;
}

// e^x for x ≤ 0; a normal number always, a little above the smallest where it would be less. With n the whole number nearest to
// x / log 2 and r = x − n log 2, |r| ≤ log(2) / 2, it is 2^n times the Taylor polynomial of e^r,
// whose remainder is below a rounding. Adding MAGIC rounds to a whole number, in the lowest bits.
static inline vec exp_of(vec x) {
  const real lowest = SINGLE ? -87.3365 : -708.396;
  const real magic = SINGLE ? 12582912.0 : 6755399441055744.0;
  const real high = SINGLE ? 0.693359375 : 0.693147180369123816490;
  const real low = SINGLE ? -2.12194440054690583e-4 : 1.90821492927058770002e-10;
  static const real coefficient[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
      1.0 / 40320,      1.0 / 5040,      1.0 / 720,      1.0 / 120,     1.0 / 24,
      1.0 / 6,          1.0 / 2,         1.0,            1.0};
  x = larger(x, fill(lowest));
  vec shifted = x * (real)1.4426950408889634 + magic;
  vec nearest = shifted - magic;
  vec rest = (x - nearest * high) - nearest * low;
  int first = SINGLE ? 6 : 0;
  vec value = fill(coefficient[first]);
  for (int k = first + 1; k < 14; k++) value = value * rest + coefficient[k];
  mask exponent = (mask)shifted - (mask)fill(magic);
  mask bias = exponent + (SINGLE ? 127 : 1023);
  return value * (vec)(bias << (SINGLE ? 23 : 52));
}

// log x for normal x > 0, and 0 for x = 0. With x = 2^n m, m between √½ and √2, and
// f = (m − 1) / (m + 1), it is n log 2 + 2 (f + f³/3 + f⁵/5 + …), |f| ≤ .172.
static inline vec log_of(vec x) {
  mask is_positive = x > 0;
  mask bits = (mask)choose(is_positive, x, fill(1));
  mask offset = bits - (mask)fill(0.70710678118654752);
  mask exponent = offset >> (SINGLE ? 23 : 52);
  vec mantissa = (vec)(bits - (exponent << (SINGLE ? 23 : 52)));
  vec ratio = (mantissa - 1) / (mantissa + 1), square = ratio * ratio;
  int terms = SINGLE ? 5 : 12;
  vec value = fill((real)1 / (2 * terms + 1));
  for (int k = terms - 1; k >= 0; k--) value = value * square + (real)1 / (2 * k + 1);
  vec whole = __builtin_convertvector(exponent, vec);
  return whole * (real)0.69314718055994531 + 2 * ratio * value;
}

// Rows become columns: lane l of vector k becomes lane k of vector l. Blocks of lanes off the
// diagonal change places, of one lane first, then of two, and so on.
static inline void transpose(vec square[LANES]) {
#pragma GCC unroll 4
  for (int width = 1; width < LANES; width *= 2) {
    mask first, second;
    for (int l = 0; l < LANES; l++) {
      first[l] = l & width ? LANES + (l ^ width) : l;
      second[l] = l & width ? LANES + l : l ^ width;
    }
    for (int k = 0; k < LANES; k++) {
      if (k & width) continue;
      vec upper = square[k], lower = square[k | width];
#ifdef __clang__
      for (int l = 0; l < LANES; l++) {
        square[k][l] = l & width ? lower[l ^ width] : upper[l];
        square[k | width][l] = l & width ? lower[l] : upper[l ^ width];
      }
#else
      square[k] = __builtin_shuffle(upper, lower, first);
      square[k | width] = __builtin_shuffle(upper, lower, second);
#endif
    }
  }
}

// Numbers of some rows, each `length` of them, as `length` vectors with a row in each lane; rows
// that are missing repeat the first.
static inline void gather_rows(const real *rows, long stride, int here, long length, vec *columns) {
  long k = 0;
  for (; k + LANES <= length; k += LANES) {
    vec square[LANES];
    for (int l = 0; l < LANES; l++)
      memcpy(&square[l], rows + (l < here ? l : 0) * stride + k, sizeof(vec));
    transpose(square);
    for (int l = 0; l < LANES; l++) columns[k + l] = square[l];
  }
  for (; k < length; k++)
    for (int l = 0; l < LANES; l++) columns[k][l] = rows[(l < here ? l : 0) * stride + k];
}

// The reverse, for the rows that are there.
static inline void scatter_rows(const vec *from, long length, real *rows, long stride, int here) {
  long k = 0;
  for (; k + LANES <= length; k += LANES) {
    vec square[LANES];
    for (int l = 0; l < LANES; l++) square[l] = from[k + l];
    transpose(square);
    for (int l = 0; l < here; l++) memcpy(rows + l * stride + k, &square[l], sizeof(vec));
  }
  for (; k < length; k++)
    for (int l = 0; l < here; l++) rows[l * stride + k] = from[k][l];
}

#endif
