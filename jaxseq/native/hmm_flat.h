// Products on vectors [word][label] of emissions, scaled, for hmm.cc, which includes it once a REAL.

// Of Θ̃ = σ·x: over = σ / Θ̃, share = σ / ΣΘ̃, weight = 1 / (σ · the number of sequences).
typedef struct {
    const REAL *over, *share, *weight;
    double *means; // [label], room
} OWN(scales);

// slopes[word][label] = x·over − Σ_word x·share: how log Θ = log(Θ̃ / ΣΘ̃) changes.
INLINE void OWN(find_slopes)(const places *at, const OWN(scales) *by, const REAL *x, REAL *slopes) {
    const int64_t labels = at->labels, words = at->words_end - 1;
    memset(by->means, 0, sizeof(double) * (size_t)labels);
    for (int64_t w = 0; w < words; w++)
        for (int64_t j = 0; j < labels; j++)
            by->means[j] += (double)x[w * labels + j] * by->share[w * labels + j];
    for (int64_t w = 0; w < words; w++)
        for (int64_t j = 0; j < labels; j++) {
            const int64_t k = w * labels + j;
            slopes[w * at->columns + j] = (REAL)(x[k] * by->over[k] - by->means[j]);
        }
}

// totals = weight · the sum of all parts' counts, in the order of the parts.
INLINE void OWN(collect)(const OWN(products) *all, const REAL *weight, REAL *totals) {
    const int64_t labels = all->at->labels, columns = all->at->columns;
    const int64_t words = all->at->words_end - 1;
    for (int64_t w = 0; w < words; w++)
        for (int64_t j = 0; j < labels; j++) {
            REAL sum = 0;
            for (int64_t part = 0; part < all->parts; part++)
                sum += all->counts[part][w * columns + j];
            totals[w * labels + j] = weight[w * labels + j] * sum;
        }
}

extern "C" void OWN(hmm_flat_product)(const OWN(products) *all, const OWN(scales) *by, const REAL *x,
                                      REAL *totals) {
    OWN(find_slopes)(all->at, by, x, all->slopes);
    OWN(hmm_product)(all);
    OWN(collect)(all, by->weight, totals);
}
