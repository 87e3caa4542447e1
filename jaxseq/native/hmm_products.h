// Products with the Jacobian of expected counts, for hmm.cc, which includes it once a REAL.

// What linearising keeps of a point, [slot][label][lane] each, and the transitions.
typedef struct {
    const REAL *transition, *transposed;
    const REAL *alpha, *over_mass, *gamma;
} OWN(point);

// counts[word][label] = the change of expected counts, as logarithms of emissions change by
// slopes[word][label] and those of first labels by initial[label], unless that is NULL; then firsts
// is not looked at either. scratch: 2·(slots of the longest group + 1)·labels vectors.
static void OWN(product_of_part)(const places *at, const OWN(point) *here, const REAL *slopes,
                                 REAL *counts, REAL *firsts, REAL *scratch, const REAL *initial) {
    const int64_t labels = at->labels, columns = at->columns, step = labels * (WIDTH / LANES);
    memset(counts, 0, sizeof(REAL) * (size_t)(at->words_end * columns));
    if (initial) memset(firsts, 0, sizeof(REAL) * (size_t)labels);
    vec *x = (vec *)scratch, *y = x + labels;
    for (int64_t part = 0; part < at->groups * (WIDTH / LANES); part++) {
        const int64_t group = part / (WIDTH / LANES), lane = part % (WIDTH / LANES) * LANES;
        const int64_t start = at->first[group], slots = at->first[group + 1] - start;
        const int32_t *words = at->words + start * WIDTH + lane;
        const uint16_t *begins = at->begins + start;
        // A slot's vectors are WIDTH / LANES apart.
        const vec *alpha = (const vec *)(here->alpha + start * labels * WIDTH + lane);
        const vec *over_mass = (const vec *)(here->over_mass + start * labels * WIDTH + lane);
        const vec *gamma = (const vec *)(here->gamma + start * labels * WIDTH + lane);
        enum { APART = WIDTH * sizeof(REAL) / 64 };
        vec *own = y + labels, *left = own + slots * labels;
        for (int64_t t = 0; t < slots; t++) {
            vec *f = own + t * labels, *l = left + t * labels;
            OWN(look_up)(slopes, columns, words + t * WIDTH, labels, f);
            if (initial && begins[t]) {
                vec begin = OWN(lanes)(begins[t] >> lane);
                for (int64_t j = 0; j < labels; j++) f[j] += begin * initial[j];
            }
            if (t) {
                const vec *before = alpha + (t - 1) * step, *over = over_mass + t * step;
                OWN(multiply_both)(labels, here->transition, before, APART, l - labels, y);
                for (int64_t j = 0; j < labels; j++) l[j] = f[j] + over[j * APART] * y[j];
            } else
                memcpy(l, f, sizeof(vec) * (size_t)labels);
        }
        const vec *last = gamma + (slots - 1) * step;
        vec mean = {0};
        for (int64_t j = 0; j < labels; j++)
            mean += last[j * APART] * left[(slots - 1) * labels + j];
        for (int64_t t = slots - 1; t >= 0; t--) {
            const vec *f = own + t * labels, *share = gamma + t * step;
            const vec *over = over_mass + t * step;
            vec *change = left + t * labels;
            const vec *a = alpha + t * step;
            for (int64_t j = 0; j < labels; j++) {
                vec h = t + 1 < slots ? a[j * APART] * y[j] : -mean * share[j * APART];
                x[j] = over[j * APART] * (share[j * APART] * f[j] + h);
                change[j] = share[j * APART] * change[j] + h;
            }
            OWN(add_up)(counts, columns, words + t * WIDTH, labels, change);
            if (initial && begins[t]) {
                vec begin = OWN(lanes)(begins[t] >> lane);
                for (int64_t j = 0; j < labels; j++) firsts[j] += OWN(sum)(begin * change[j]);
            }
            if (t) OWN(multiply)(labels, here->transposed, x, y);
        }
    }
}

// All parts, at one point; [parts] each, but for the slopes and a scratch a thread.
typedef struct {
    pool *threads;
    int64_t parts;
    const places *at;
    const OWN(point) *here;
    REAL *slopes;
    REAL *const *counts, *const *firsts, *const *scratch;
    const REAL *initial;
} OWN(products);

static void OWN(product_job)(const void *what, int64_t part, int64_t thread) {
    const OWN(products) *all = (const OWN(products) *)what;
    OWN(product_of_part)(all->at + part, all->here + part, all->slopes, all->counts[part],
                         all->firsts[part], all->scratch[thread], all->initial);
}

// With all->initial, which the caller may set anew, or NULL.
extern "C" void OWN(hmm_product)(const OWN(products) *all) {
    share_out(all->threads, OWN(product_job), all, all->parts);
}
