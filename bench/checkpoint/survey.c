/* The arithmetic over weights and moments. */
#include "bench/checkpoint/survey.h"

#include "kernels/format/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

static ab_status load(const ab_checkpoint_tensor *tensor, float **values) {
    *values = malloc((size_t)(tensor->entry->count > 0 ? tensor->entry->count : 1) * sizeof **values);
    if (!*values)
        return ab_fail(AB_NO_MEMORY, "%s: out of memory for %" PRId64 " values", tensor->file->path,
                       tensor->entry->count);
    return ab_tensorfile_read(tensor->file, tensor->entry, *values);
}

static const ab_format *most_of(const int64_t *sizes) {
    int best = 0;
    for (int i = 1; i < AB_ELEMENT_COUNT; i++)
        if (sizes[i] > sizes[best]) best = i;
    return sizes[best] > 0 ? ab_element_at((ab_element_id)best)->format : NULL;
}

static void add_size(int64_t *sizes, const ab_tensor_entry *entry) {
    for (int i = 0; i < AB_ELEMENT_COUNT; i++)
        if (ab_element_at((ab_element_id)i) == entry->element) sizes[i] += entry->count;
}

const ab_format *ab_checkpoint_weights_format(const ab_checkpoint *c) {
    int64_t sizes[AB_ELEMENT_COUNT] = {0};
    for (int i = 0; i < c->weights; i++) add_size(sizes, c->weight[i].entry);
    return most_of(sizes);
}

const ab_format *ab_checkpoint_moments_format(const ab_checkpoint *c) {
    int64_t sizes[AB_ELEMENT_COUNT] = {0};
    for (int i = 0; i < c->moment_count; i++) add_size(sizes, c->moments[i].second.entry);
    return most_of(sizes);
}

/* ---- moments --------------------------------------------------------------------------------- */

/* What the next step needs to know. */
typedef struct adam {
    double lr, eps, decay, correct1, correct2;
    const ab_format *format; /* of the weight; NULL: no half format */
} adam;

static double or_else(double x, double otherwise) { return isnan(x) ? otherwise : x; }

static adam adam_of(const ab_checkpoint *c, const ab_checkpoint_moments *moments) {
    const ab_checkpoint_group *g = c->groups > 0 ? &c->group[moments->group >= 0 ? moments->group : 0] : NULL;
    const double step = or_else(moments->step, c->steps), t = or_else(step, (double)INFINITY);
    adam a = {.lr = (double)NAN, .eps = 1e-8, .correct1 = 1, .correct2 = 1};
    if (moments->weight >= 0) {
        const ab_format *format = c->weight[moments->weight].entry->element->format;
        if (format->storage_bytes == 2 && !c->layout->masters) a.format = format;
    }
    if (!g) return a;
    a.lr = g->lr;
    a.eps = or_else(g->eps, a.eps);
    a.decay = g->decoupled ? or_else(g->weight_decay, 0) : 0;
    if (t > 0) a.correct1 = 1 - pow(or_else(g->beta1, 0), t);
    if (t > 0) a.correct2 = 1 - pow(or_else(g->beta2, 0), t);
    return a;
}

static void judge(const adam *a, float w, float m, double root, ab_checkpoint_account *account) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    const double update = a->lr * ((double)m / a->correct1 / (root + a->eps) + a->decay * (double)w);
    if (update == 0 || !isfinite(update)) return;
    const bool lost = ab_format_round(a->format, &nearest, (double)w - update) == (double)w;
    account->nonzero++;
    account->lost += lost;
    account->energy += update * update;
    account->lost_energy += lost ? update * update : 0;
}

static void count(const adam *a, const float *w, const float *m, const float *v,
                  ab_checkpoint_account *account) {
    for (int64_t i = 0; i < account->count; i++) {
        const double root = sqrt((double)v[i] / a->correct2);
        account->zero += v[i] == 0 && m[i] != 0;
        account->below_eps += v[i] > 0 && root < a->eps;
        if (account->judged) judge(a, w[i], m[i], root, account);
    }
}

ab_status ab_checkpoint_account_of(const ab_checkpoint *c, int moments, ab_checkpoint_account *account) {
    const ab_checkpoint_moments *both = &c->moments[moments];
    const adam a = adam_of(c, both);
    float *w = NULL, *m = NULL, *v = NULL;
    *account = (ab_checkpoint_account){.count = both->second.entry->count, .judged = a.format && a.lr > 0};
    ab_status status = load(&both->first, &m);
    if (status == AB_OK) status = load(&both->second, &v);
    if (status == AB_OK && account->judged) status = load(&c->weight[both->weight], &w);
    if (status == AB_OK) count(&a, w, m, v, account);
    free(w);
    free(m);
    free(v);
    return status;
}

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct beyond {
    int64_t beyond[AB_TENSORFILE_CHUNKS], nonfinite[AB_TENSORFILE_CHUNKS];
} beyond;

static void see_block(void *context, int chunk, const ab_tensor_block *block) {
    beyond *b = context;
    const size_t bytes = (size_t)block->format->storage_bytes;
    const double limit = ab_format_overflow_limit(&ab_format_fp16);
    for (int64_t i = 0; i < block->n; i++) {
        uint32_t code = 0;
        uint16_t half = 0;
        if (bytes == sizeof half) {
            memcpy(&half, (const char *)block->data + (size_t)i * bytes, sizeof half);
            code = half;
        } else {
            memcpy(&code, (const char *)block->data + (size_t)i * bytes, sizeof code);
        }
        const double value = ab_format_decode(block->format, code);
        b->nonfinite[chunk] += !isfinite(value);
        b->beyond[chunk] += isfinite(value) && fabs(value) >= limit;
    }
}

ab_status ab_checkpoint_beyond_half(const ab_checkpoint *c, int64_t *beyond_half, int64_t *nonfinite) {
    *beyond_half = *nonfinite = 0;
    for (int i = 0; i < c->weights; i++) {
        beyond b = {{0}, {0}};
        const ab_block_visitor visitor = {.context = &b, .see = see_block};
        AB_TRY(ab_tensorfile_stream(c->weight[i].file, c->weight[i].entry, &visitor));
        for (int k = 0; k < AB_TENSORFILE_CHUNKS; k++) {
            *beyond_half += b.beyond[k];
            *nonfinite += b.nonfinite[k];
        }
    }
    return AB_OK;
}

/* ---- two checkpoints ------------------------------------------------------------------------- */

static const ab_checkpoint_tensor *weight_named(const ab_checkpoint *c, const ab_checkpoint_tensor *like) {
    for (int i = 0; i < c->weights; i++)
        if (strcmp(c->weight[i].name, like->name) == 0 && c->weight[i].entry->count == like->entry->count)
            return &c->weight[i];
    return NULL;
}

static bool is_trained(const ab_checkpoint *c, int weight) {
    for (int i = 0; i < c->moment_count; i++)
        if (c->moments[i].weight == weight) return true;
    return c->moment_count == 0;
}

static ab_status compare(const ab_checkpoint_tensor *before, const ab_checkpoint_tensor *after,
                         ab_checkpoint_motion *motion) {
    float *x = NULL, *y = NULL;
    int64_t moved = 0;
    ab_status status = load(before, &x);
    if (status == AB_OK) status = load(after, &y);
    for (int64_t i = 0; status == AB_OK && i < after->entry->count; i++) moved += x[i] != y[i];
    free(x);
    free(y);
    motion->elements += after->entry->count;
    motion->moved += moved;
    motion->tensors++;
    motion->still += moved == 0;
    return status;
}

ab_status ab_checkpoint_motion_of(const ab_checkpoint *before, const ab_checkpoint *after,
                                  ab_checkpoint_motion *motion) {
    *motion = (ab_checkpoint_motion){0};
    for (int i = 0; i < after->weights; i++) {
        const ab_checkpoint_tensor *old = weight_named(before, &after->weight[i]);
        if (old && is_trained(after, i)) AB_TRY(compare(old, &after->weight[i], motion));
    }
    return motion->tensors > 0
               ? AB_OK
               : ab_fail(AB_NOT_COMPARABLE, "%s and %s have no weight in common", before->path, after->path);
}
