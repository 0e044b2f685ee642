/* Every tensor under every number of ranks and rule; sums over tensors become outcomes. */
#include "bench/ranks/ranks.h"

#include "bench/ranks/gradients.h"
#include "bench/ranks/simulate.h"
#include "kernels/core/rng.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>

enum { DEAL_SEED = 1 };

/* ---- who has which micro-batch --------------------------------------------------------------- */

void ab_ranks_deal(int micro_batches, int64_t ranks, int32_t *micro) {
    for (int64_t r = 0; r < ranks; r++) micro[r] = (int32_t)(r % micro_batches);
    for (int64_t first = 0; first < ranks; first += micro_batches) {
        int64_t left = ranks - first, n = left < micro_batches ? left : micro_batches;
        for (int64_t i = n - 1; i > 0; i--) { /* Fisher and Yates's shuffle */
            uint64_t j = ab_rng_below(DEAL_SEED, AB_RNG_DESIGN, (uint32_t)(first / micro_batches),
                                      (uint64_t)i, (uint64_t)i + 1);
            int32_t other = micro[first + (int64_t)j];
            micro[first + (int64_t)j] = micro[first + i];
            micro[first + i] = other;
        }
    }
}

/* ---- outcomes -------------------------------------------------------------------------------- */

static ab_ranks_outcome outcome_of(const ab_ranks_sums *s, int64_t ranks) {
    ab_ranks_outcome outcome = {.worst = -1};
    outcome.error = sqrt(s->error2 / s->size2);
    outcome.bias = s->dot / s->size2 - 1;
    outcome.overflowed = s->finite ? (double)s->overflowed / (double)s->finite : 0;
    outcome.flushed = s->nonzero ? (double)s->flushed / (double)s->nonzero : 0;
    outcome.noise = sqrt(s->variance / (double)ranks / s->mean2);
    return outcome;
}

/* ---- the run --------------------------------------------------------------------------------- */

typedef struct run {
    const ab_ranks_request *request;
    ab_ranks_result *result;
    ab_gradients gradients;
    float *value;         /* [files][elements of the largest tensor] */
    int32_t *micro;       /* [largest number of ranks] */
    ab_ranks_sums *total; /* [counts][rules] */
    int64_t stride, position;
    int done;
} run;

static int slot_of(const run *r, int count, int rule) { return count * r->request->question.rules + rule; }

static ab_status allocate(run *r) {
    const ab_ranks_question *q = &r->request->question;
    size_t files = (size_t)r->gradients.files, largest = (size_t)ab_gradients_largest(&r->gradients),
           slots = (size_t)q->counts * (size_t)q->rules, tensors = (size_t)r->gradients.tensors;
    r->value =
        largest < SIZE_MAX / sizeof *r->value / files ? malloc(files * largest * sizeof *r->value) : NULL;
    if (!r->value)
        return ab_fail(AB_NO_MEMORY, "ranks: out of memory for %zu micro-batches of a tensor of %zu elements",
                       files, largest);
    r->micro = malloc((size_t)q->count[q->counts - 1] * sizeof *r->micro);
    r->total = calloc(slots, sizeof *r->total);
    r->result->tensor = calloc(tensors, sizeof *r->result->tensor);
    r->result->outcome = calloc(slots, sizeof *r->result->outcome);
    r->result->by_tensor = calloc(slots * tensors, sizeof *r->result->by_tensor);
    if (r->micro && r->total && r->result->tensor && r->result->outcome && r->result->by_tensor) return AB_OK;
    return ab_fail(AB_NO_MEMORY, "ranks: out of memory for the results of %zu tensors", tensors);
}

static ab_status describe(run *r) {
    ab_ranks_result *result = r->result;
    const ab_ranks_question *q = &r->request->question;
    result->question = q;
    result->micro_batches = r->gradients.files;
    result->tensors = r->gradients.tensors;
    result->skipped = r->gradients.skipped;
    for (int t = 0; t < result->tensors; t++) result->count += ab_gradients_count(&r->gradients, t);
    r->stride =
        q->elements && result->count > q->elements ? (result->count + q->elements - 1) / q->elements : 1;
    for (int t = 0; t < result->tensors; t++) {
        int64_t count = ab_gradients_count(&r->gradients, t);
        char *name = ab_text_new("%s", ab_gradients_name(&r->gradients, t));
        if (!name) return ab_fail(AB_NO_MEMORY, "ranks: out of memory for a name");
        result->tensor[t] = (ab_ranks_tensor){name, count, ab_ranks_selected(count, r->stride)};
        result->simulated += result->tensor[t].simulated;
    }
    return AB_OK;
}

static ab_status simulate_rule(run *r, int tensor, int count, int rule) {
    const ab_ranks_question *q = &r->request->question;
    ab_ranks_job job = {.value = r->value,
                        .micro_batches = r->gradients.files,
                        .count = ab_gradients_count(&r->gradients, tensor),
                        .position = r->position,
                        .stride = r->stride,
                        .scale = (float)q->scale,
                        .reduction = q->rule[rule].reduction,
                        .ranks = q->count[count],
                        .micro = r->micro};
    if (!job.reduction.wire) job.reduction.wire = ab_gradients_format(&r->gradients, tensor);
    job.bucket = ab_reduce_bucket(&job.reduction, q->bucket_bytes);
    ab_ranks_sums sums;
    AB_TRY(ab_ranks_simulate(&job, &sums));
    int slot = slot_of(r, count, rule);
    ab_ranks_sums_add(&r->total[slot], &sums);
    ab_ranks_outcome *outcome = &r->result->by_tensor[slot * r->result->tensors + tensor];
    *outcome = outcome_of(&sums, q->count[count]);
    return AB_OK;
}

static ab_status simulate_tensor(run *r, int tensor) {
    const ab_ranks_question *q = &r->request->question;
    AB_TRY(ab_gradients_read(&r->gradients, tensor, r->value));
    for (int c = 0; c < q->counts; c++) {
        ab_ranks_deal(r->gradients.files, q->count[c], r->micro);
        for (int k = 0; k < q->rules; k++) AB_TRY(simulate_rule(r, tensor, c, k));
        r->done++;
        if (r->request->progress) r->request->progress(r->done, q->counts * r->gradients.tensors);
    }
    r->position += ab_gradients_count(&r->gradients, tensor);
    return AB_OK;
}

static int worst_tensor(const ab_ranks_result *result, int slot) {
    int worst = -1;
    const ab_ranks_outcome *of = &result->by_tensor[slot * result->tensors];
    for (int t = 0; t < result->tensors; t++)
        if (of[t].error > (worst < 0 ? 0 : of[worst].error)) worst = t;
    return worst;
}

static void conclude(run *r) {
    const ab_ranks_question *q = &r->request->question;
    ab_ranks_result *result = r->result;
    for (int c = 0; c < q->counts; c++)
        for (int k = 0; k < q->rules; k++) {
            int slot = slot_of(r, c, k);
            result->outcome[slot] = outcome_of(&r->total[slot], q->count[c]);
            result->outcome[slot].worst = worst_tensor(result, slot);
        }
    result->not_finite = r->total[0].not_finite;
    result->noise = sqrt(r->total[0].variance / r->total[0].mean2);
}

ab_status ab_ranks_run(const ab_ranks_request *request, ab_ranks_result *result) {
    *result = (ab_ranks_result){0};
    if (request->files < 2)
        return ab_fail(AB_USAGE,
                       "ranks: expected at least 2 files, the gradients of one micro-batch each, found %d",
                       request->files);
    run r = {.request = request, .result = result};
    ab_status status;
    AB_TRY_GOTO(ab_gradients_open(request->file, request->files, &r.gradients));
    AB_TRY_GOTO(allocate(&r));
    AB_TRY_GOTO(describe(&r));
    for (int t = 0; t < result->tensors; t++) AB_TRY_GOTO(simulate_tensor(&r, t));
    conclude(&r);
out:
    free(r.value);
    free(r.micro);
    free(r.total);
    ab_gradients_close(&r.gradients);
    return status;
}

void ab_ranks_free(ab_ranks_result *result) {
    for (int t = 0; result->tensor && t < result->tensors; t++) free(result->tensor[t].name);
    free(result->tensor);
    free(result->outcome);
    free(result->by_tensor);
    *result = (ab_ranks_result){0};
}
