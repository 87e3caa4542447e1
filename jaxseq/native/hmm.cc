// Expected counts of hidden Markov models, and products with their Jacobian where transitions do not
// move, from probabilities to counts. The mathematics is in jaxseq/hmm/_native.py.
//
// Sequences lie in groups of WIDTH, each in a lane of its own, of about one length and with their
// ends in one slot: what is before a beginning has the word num_words, whose rows of all tables are
// zeros, and so needs no mask. Arrays are [slot][label][lane]: sums over labels are sums of vectors,
// labels need no padding, and a product with the transitions has one broadcast number and one
// multiplication a pair of labels for all lanes. Tables by word are [word][columns], columns a
// multiple of WIDTH; rows are turned into lanes, and back, in registers.

#include <stdint.h>
#include <string.h>

enum { WIDTH = 16 };

#define INLINE static inline __attribute__((always_inline))
#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define OWN(name) PASTE(name, KIND)

typedef float vec_single __attribute__((vector_size(64)));
typedef double vec_wide __attribute__((vector_size(64)));
typedef float half_single __attribute__((vector_size(32)));
typedef uint8_t bytes __attribute__((vector_size(8)));

// Elements of two vectors by turns: the first half of that, and the second.
#define LOW_single(a, b)                                                                           \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_single(a, b)                                                                          \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW_wide(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_wide(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

// Where the sequences of a part of the corpus lie.
typedef struct {
    int64_t groups, labels, columns, words_end;
    const int64_t *first;   // [groups + 1] the slot with which a group begins
    const int32_t *words;   // [slots][WIDTH]
    const uint16_t *begins; // [slots] a bit a lane: whether its sequence begins here
    const uint8_t *allowed; // [slots][labels][WIDTH] whether a label may be, or NULL if all may
} places;

#include "hmm_pool.h"

#define REAL float
#define KIND single
#include "hmm_vectors.h"
#include "hmm_products.h"
#include "hmm_flat.h"
#undef REAL
#undef KIND

#define REAL double
#define KIND wide
#include "hmm_vectors.h"
#include "hmm_products.h"
#include "hmm_flat.h"
#include "hmm_counts.h"
