// Tangents and changes of emissions as vectors [word][label], scaled, for hmm.cc, which includes it
// once a REAL.

// slopes[word][label] = x·over − Σ_word x·share: how log Θ = log(Θ̃ / ΣΘ̃) changes, with Θ̃ = σ·x,
// over = σ / Θ̃ and share = σ / ΣΘ̃.
extern "C" void OWN(hmm_slopes)(const places *at, const REAL *x, const REAL *over, const REAL *share,
                     REAL *slopes, double *means) {
    const int64_t labels = at->labels, words = at->words_end - 1;
    memset(means, 0, sizeof(double) * (size_t)labels);
    for (int64_t w = 0; w < words; w++)
        for (int64_t j = 0; j < labels; j++)
            means[j] += (double)x[w * labels + j] * share[w * labels + j];
    for (int64_t w = 0; w < words; w++)
        for (int64_t j = 0; j < labels; j++) {
            const int64_t k = w * labels + j;
            slopes[w * at->columns + j] = (REAL)(x[k] * over[k] - means[j]);
        }
}

// found = weight · the sum of all cores' counts.
extern "C" void OWN(hmm_collect)(const places *at, int64_t cores, const REAL *const *counts,
                      const REAL *weight, REAL *found) {
    const int64_t labels = at->labels, words = at->words_end - 1;
    for (int64_t w = 0; w < words; w++)
        for (int64_t j = 0; j < labels; j++) {
            REAL sum = 0;
            for (int64_t core = 0; core < cores; core++) sum += counts[core][w * at->columns + j];
            found[w * labels + j] = weight[w * labels + j] * sum;
        }
}
