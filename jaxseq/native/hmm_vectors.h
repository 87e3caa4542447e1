// Algebra on vectors of REAL, for hmm.cc, which includes it once a REAL.

#define vec OWN(vec)
#define LANES ((int)(64 / sizeof(REAL)))
#ifdef __AVX512F__
#define TILE 16  // sums that registers hold
#else
#define TILE 4
#endif

INLINE vec OWN(all)(REAL number) { return number - (vec){0}; }

// After k of 2^k rounds in which rows go by turns with those half of all further, each bit of an
// element's row has changed places with that of its column.
INLINE void OWN(transpose)(vec *rows) {
#pragma GCC unroll 4
    for (int round = 1; round < LANES; round *= 2) {
        vec turned[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            turned[2 * i] = OWN(LOW)(rows[i], rows[i + LANES / 2]);
            turned[2 * i + 1] = OWN(HIGH)(rows[i], rows[i + LANES / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) rows[i] = turned[i];
    }
}

// gathered[label] of LANES words, from their rows of a table.
INLINE void OWN(look_up)(const REAL *table, int64_t columns, const int32_t *words, int64_t labels,
                         vec *gathered) {
    for (int64_t from = 0; from < labels; from += LANES) {
        vec rows[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            rows[i] = *(const vec *)(table + words[i] * columns + from);
        OWN(transpose)(rows);
        int64_t number = labels - from;
        if (number >= LANES) {
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) gathered[from + i] = rows[i];
        } else {
#pragma GCC unroll 16
            for (int i = 0; i < LANES - 1; i++)
                if (i < number) gathered[from + i] = rows[i];
        }
    }
}

// Adds what is in values[label] to the rows of LANES words.
INLINE void OWN(add_up)(REAL *table, int64_t columns, const int32_t *words, int64_t labels,
                        const vec *values) {
    for (int64_t from = 0; from < labels; from += LANES) {
        vec rows[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            rows[i] = from + i < labels ? values[from + i] : (vec){0};
        OWN(transpose)(rows);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) *(vec *)(table + words[i] * columns + from) += rows[i];
    }
}

// Factors are a[i·apart]·b[i], or b[i] alone if a is NULL.
INLINE void OWN(tile)(const int width, int64_t labels, const REAL *matrix, const vec *a,
                      int64_t apart, const vec *b, vec *y) {
    vec sums[TILE];
#pragma GCC unroll 16
    for (int j = 0; j < width; j++) sums[j] = (vec){0};
    for (int64_t i = 0; i < labels; i++) {
        const REAL *row = matrix + i * labels;
        vec factor = a ? a[i * apart] * b[i] : b[i];
#pragma GCC unroll 16
        for (int j = 0; j < width; j++) sums[j] += row[j] * factor;
    }
#pragma GCC unroll 16
    for (int j = 0; j < width; j++) y[j] = sums[j];
}

// y[j] = Σ_i matrix[i][j] a[i·apart] b[i], as many sums at a time as registers hold.
INLINE void OWN(tiles)(int64_t labels, const REAL *matrix, const vec *a, int64_t apart,
                       const vec *b, vec *y) {
    for (int64_t from = 0; from < labels; from += TILE) {
        int64_t number = labels - from < TILE ? labels - from : TILE;
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        OWN(tile)(n, labels, matrix + from, a, apart, b, y + from);                                \
        break;
        switch (number) {
            CASE(1) CASE(2) CASE(3) CASE(4)
#if TILE > 4
            CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
            CASE(15) CASE(16)
#endif
        }
#undef CASE
    }
}

static void OWN(multiply)(int64_t labels, const REAL *matrix, const vec *x, vec *y) {
    OWN(tiles)(labels, matrix, NULL, 0, x, y);
}

static void OWN(multiply_both)(int64_t labels, const REAL *matrix, const vec *a, int64_t apart,
                               const vec *b, vec *y) {
    OWN(tiles)(labels, matrix, a, apart, b, y);
}

// 1 in lanes whose bit is set, else 0.
INLINE vec OWN(lanes)(unsigned bits) {
    vec bits_as_numbers;
    for (int i = 0; i < LANES; i++) bits_as_numbers[i] = bits >> i & 1;
    return bits_as_numbers;
}

INLINE REAL OWN(sum)(vec values) {
    REAL total = 0;
    for (int i = 0; i < LANES; i++) total += values[i];
    return total;
}
#undef TILE
