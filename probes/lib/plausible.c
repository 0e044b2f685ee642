/* Bounds of counts. */
#include "probes/lib/plausible.h"

#include <string.h>

static const int64_t most_of_run = INT64_C(1) << 53; /* steps, values, times: exact as a double */
static const int64_t most_of_step = INT64_C(1) << 40;

static bool are_counts(const int64_t *n, size_t count, int64_t most) {
    for (size_t i = 0; i < count; i++)
        if (n[i] < 0 || n[i] > most) return false;
    return true;
}

/* A step, or -1: none. */
static bool is_step(int64_t step) { return step >= -1 && step <= most_of_run; }

static bool are_range_counts(const ab_range_counts *c, int64_t most) {
    const int64_t n[] = {c->count,   c->zero,      c->nan,    c->inf,       c->nonzero,
                         c->flushed, c->subnormal, c->normal, c->overflowed};
    return c->low >= 0 && c->low <= c->high && c->high <= AB_CENSUS_EXPONENTS &&
           are_counts(n, AB_COUNT_OF(n), most) && are_counts(c->exponent, AB_CENSUS_EXPONENTS, most);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_column_good(const ab_columns *c) {
    const int64_t n[] = {c->stride, c->first};
    unsigned char started; /* of damage any byte, which must not be read as a bool */
    memcpy(&started, &c->started, sizeof started);
    return started <= 1 && c->count >= started && c->count <= AB_COLUMNS && c->every == 1 &&
           are_counts(n, AB_COUNT_OF(n), most_of_run);
}

static bool is_group_good(const ab_lib_group *g) {
    const int64_t n[] = {g->steps,   g->skipped, g->unknown,       g->exact_overflows, g->silent_skips,
                         g->clipped, g->normed,  g->micro_batches, g->clipped_scaled,  g->schedule_on_skip,
                         g->scaled,  g->checked, g->called};
    return are_counts(n, AB_COUNT_OF(n), most_of_run) && is_step(g->first_skipped);
}

static bool are_steps_good(const ab_lib_steps *s) {
    const int64_t n[] = {s->nonfinite_losses, s->known_losses};
    if (!(s->stride > 0 && s->stride <= most_of_run && s->losses >= 0 && s->losses <= AB_LIB_LOSSES &&
          s->scales >= 0 && s->scales <= AB_LIB_SCALES && s->skips >= 0 && s->skips <= AB_LIB_SKIPS))
        return false;
    if (!(s->rate_stride > 0 && s->rate_stride <= most_of_run && s->rates >= 0 && s->rates <= AB_LIB_RATES))
        return false;
    for (int i = 0; i < AB_LIB_RATES; i++)
        if (s->rated[i] < 0 || s->rated[i] > s->rate_stride || s->rated[i] > INT32_MAX / 2) return false;
    for (int i = 0; i < AB_LIB_LOSSES; i++)
        if (s->known[i] < 0 || s->known[i] > s->stride || s->known[i] > INT32_MAX / 2) return false;
    return are_counts(n, AB_COUNT_OF(n), most_of_run) &&
           are_counts(s->scale_steps, AB_LIB_SCALES, most_of_run) &&
           are_counts(s->skip, AB_LIB_SKIPS, most_of_run);
}

bool ab_lib_course_may_be(const ab_lib_course *c) {
    bool good = are_steps_good(&c->steps) && c->groups >= 0 && c->groups <= AB_LIB_GROUPS &&
                are_counts(c->probed, AB_LIB_AXES, most_of_run) &&
                are_counts(&c->layer_steps, 1, most_of_run);
    for (int i = 0; i < AB_LIB_AXES; i++) good = good && is_column_good(&c->columns[i]);
    for (int i = 0; i < AB_LIB_GROUPS; i++) good = good && is_group_good(&c->group[i]);
    return good;
}

/* ---- tensors --------------------------------------------------------------------------------- */

bool ab_lib_tensor_may_be(const ab_lib_tensor *t) {
    const ab_range_history *h = &t->history;
    const int64_t n[] = {t->shown, t->values, t->overflow_steps, h->flushed_share.steps};
    return are_counts(n, AB_COUNT_OF(n), most_of_run) &&
           are_counts(t->skipped, AB_LIB_REASONS, most_of_run) && is_step(t->first_overflow) &&
           are_range_counts(&h->total, most_of_run) && are_counts(h->nonzero, AB_COLUMNS, most_of_run) &&
           are_counts(h->flushed, AB_COLUMNS, most_of_run) &&
           are_counts(h->overflowed, AB_COLUMNS, most_of_run);
}

bool ab_lib_scaled_may_be(const ab_lib_scaled *scaled) {
    return are_counts(&scaled->rounded, 1, most_of_run) &&
           are_counts(scaled->exponent, AB_CENSUS_EXPONENTS, most_of_run) &&
           are_counts(scaled->cut, AB_COLUMNS, most_of_run);
}

bool ab_lib_pending_may_be(const ab_lib_pending *shown) {
    const int64_t n[] = {shown->shown, shown->values, shown->nonfinite};
    return are_counts(n, AB_COUNT_OF(n), most_of_step) &&
           are_counts(shown->skipped, AB_LIB_REASONS, most_of_step) &&
           are_range_counts(&shown->counts, most_of_step);
}

/* ---- updates --------------------------------------------------------------------------------- */

static bool is_account_good(const ab_lib_account *a, int64_t most) {
    const int64_t n[] = {a->nonzero, a->lost};
    return are_counts(n, AB_COUNT_OF(n), most);
}

bool ab_lib_ledger_may_be(const ab_lib_ledger *l) {
    return is_account_good(&l->update, most_of_run) && is_account_good(&l->decay, most_of_run) &&
           are_counts(l->nonzero, AB_COLUMNS, most_of_run) && are_counts(l->lost, AB_COLUMNS, most_of_run) &&
           is_step(l->stopped_since);
}

bool ab_lib_moves_may_be(const ab_lib_moves *m) {
    return is_account_good(&m->update, most_of_step) && is_account_good(&m->decay, most_of_step);
}

/* ---- facts ----------------------------------------------------------------------------------- */

static bool is_text(const char *text, size_t size) { return memchr(text, '\0', size) != NULL; }

bool ab_lib_facts_may_be(const ab_lib_facts *f) {
    bool good = f->count >= 0 && f->count <= AB_LIB_FACTS && are_counts(&f->left_out, 1, most_of_run);
    for (int32_t i = 0; good && i < f->count; i++) {
        const ab_lib_fact *fact = &f->fact[i];
        good = is_text(fact->name, AB_LIB_FACT_NAME) && is_text(fact->place, AB_LIB_FACT_PLACE) &&
               are_counts(&fact->times, 1, most_of_run);
    }
    return good;
}
