// The E-step in double precision, which keeps what products need, in either precision; for hmm.cc.

// A vector of doubles among others of the same kind, or narrowed among floats; `at` counts numbers.
INLINE void keep(void *array, const int narrow, int64_t at, vec values) {
    if (narrow)
        *(half_single *)((float *)array + at) = __builtin_convertvector(values, half_single);
    else
        *(vec *)((double *)array + at) = values;
}

typedef struct {
    const double *initial, *transition, *transposed, *factors; // [labels], two [labels][labels],
    void *alpha, *over_mass, *gamma;                           // [word][columns]
    double *counts, *firsts, *pairs;                           // pairs: NULL if not wanted
} point_and_counts;

typedef int64_t integers __attribute__((vector_size(64)));

// Comparing has all ones, or zeros, for a result in each lane.
INLINE vec choose(integers condition, vec yes, vec no) {
    return (vec)((condition & (integers)yes) | (~condition & (integers)no));
}

INLINE vec positive(vec values, vec of_them, double others) {
    return choose((integers)(values > 0), of_them, OWN(all)(others));
}

// Forward from slot to slot, then back; alphas and masses of the group in scratch.
INLINE void count_group(const places *at, const point_and_counts *here, double *scratch,
                        const int narrow, int64_t group, int64_t lane, vec *lowest) {
    const int64_t labels = at->labels, columns = at->columns;
    const int64_t start = at->first[group], slots = at->first[group + 1] - start;
    const int32_t *words = at->words + start * WIDTH + lane;
    const uint16_t *begins = at->begins + start;
    const uint8_t *allowed = at->allowed ? at->allowed + start * labels * WIDTH + lane : NULL;
    vec *x = (vec *)scratch, *y = x + labels, *pairs = y + labels;
    vec *alphas = pairs + labels * labels, *overs = alphas + slots * labels;
    vec low = *lowest;
    for (int64_t t = 0; t < slots; t++) {
        vec *alpha = alphas + t * labels, *over = overs + t * labels;
        if (t)
            OWN(multiply)(labels, here->transition, alpha - labels, y);
        else
            memset(y, 0, sizeof(vec) * (size_t)labels);
        OWN(look_up)(here->factors, columns, words + t * WIDTH, labels, x);
        if (allowed)
            for (int64_t j = 0; j < labels; j++)
                x[j] *= __builtin_convertvector(
                    *(const bytes *)(allowed + (t * labels + j) * WIDTH), vec);
        vec begin = begins[t] ? OWN(lanes)(begins[t] >> lane) : (vec){0}, total = {0};
        for (int64_t j = 0; j < labels; j++) {
            over[j] = positive(y[j], 1 / y[j], 0);
            alpha[j] = (y[j] + begin * here->initial[j]) * x[j];
            total += alpha[j];
        }
        total = positive(total, 1 / total, 0);
        for (int64_t j = 0; j < labels; j++) {
            alpha[j] *= total;
            vec candidate = positive(alpha[j], alpha[j], 1);
            low = choose((integers)(candidate < low), candidate, low);
            const int64_t place = ((start + t) * labels + j) * WIDTH + lane;
            keep(here->alpha, narrow, place, alpha[j]);
            keep(here->over_mass, narrow, place, over[j]);
        }
    }
    *lowest = low;
    memcpy(y, alphas + (slots - 1) * labels, sizeof(vec) * (size_t)labels);
    for (int64_t t = slots - 1; t >= 0; t--) {
        OWN(add_up)(here->counts, columns, words + t * WIDTH, labels, y);
        if (begins[t]) {
            vec begin = OWN(lanes)(begins[t] >> lane);
            for (int64_t j = 0; j < labels; j++) here->firsts[j] += OWN(sum)(begin * y[j]);
        }
        const vec *over = overs + t * labels, *before = alphas + (t - 1) * labels;
        for (int64_t j = 0; j < labels; j++) {
            keep(here->gamma, narrow, ((start + t) * labels + j) * WIDTH + lane, y[j]);
            x[j] = over[j] * y[j];
        }
        if (!t) break;
        if (here->pairs)
            for (int64_t i = 0; i < labels; i++)
                for (int64_t j = 0; j < labels; j++) pairs[i * labels + j] += before[i] * x[j];
        OWN(multiply)(labels, here->transposed, x, y);
        for (int64_t i = 0; i < labels; i++) y[i] *= before[i];
    }
}

INLINE double count(const places *at, const point_and_counts *here, double *scratch,
                    const int narrow) {
    const int64_t labels = at->labels;
    vec lowest = OWN(all)(1);
    vec *pairs = (vec *)scratch + 2 * labels;
    memset(here->counts, 0, sizeof(double) * (size_t)(at->words_end * at->columns));
    memset(here->firsts, 0, sizeof(double) * (size_t)labels);
    memset(pairs, 0, sizeof(vec) * (size_t)(labels * labels));
    for (int64_t group = 0; group < at->groups; group++)
        for (int64_t lane = 0; lane < WIDTH; lane += LANES)
            count_group(at, here, scratch, narrow, group, lane, &lowest);
    if (here->pairs)
        for (int64_t k = 0; k < labels * labels; k++)
            here->pairs[k] = OWN(sum)(pairs[k]) * here->transition[k];
    double least = 1;
    for (int i = 0; i < LANES; i++) least = lowest[i] < least ? lowest[i] : least;
    return least;
}

// All parts; [parts] each, but for a scratch a thread, of (2 + 2·slots of the longest group +
// labels)·labels vectors.
typedef struct {
    pool *threads;
    int64_t parts;
    const places *at;
    const point_and_counts *here;
    double *const *scratch;
    double *lowest;
} linearisation;

INLINE void count_part(const void *what, int64_t part, int64_t thread, const int narrow) {
    const linearisation *all = (const linearisation *)what;
    all->lowest[part] = count(all->at + part, all->here + part, all->scratch[thread], narrow);
}

static void count_single(const void *what, int64_t part, int64_t thread) {
    count_part(what, part, thread, 1);
}

static void count_wide(const void *what, int64_t part, int64_t thread) {
    count_part(what, part, thread, 0);
}

// Expected counts; what products need, in floats or doubles; and the smallest positive entry of a
// forward message.
extern "C" void hmm_linearise_single(const linearisation *all) {
    share_out(all->threads, count_single, all, all->parts);
}

extern "C" void hmm_linearise_wide(const linearisation *all) {
    share_out(all->threads, count_wide, all, all->parts);
}
