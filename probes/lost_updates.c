/* Lost updates: weight updates that vanish when the weight is stored, by cause.
 *
 * An update is lost if it is non-zero and the stored weight equals the previous one. A cause (gradient step,
 * weight decay, momentum, eps) is lost if the weight plus that term alone, added in fp32 and stored, equals
 * the previous weight: decay far below half a spacing is 100 % lost even if a large gradient step is not.
 * Energy is the sum of squares, in double. Non-finite updates are excluded, and skipped steps have none.
 *
 * Forecast: an update of r half spacings survives while r >= 1, and r is proportional to the learning rate,
 * so 90 % of a parameter's updates are lost at the learning rate lr / (the 90 % point of r). Taken from the
 * last probed step that had updates, because gradients change. */
#include "kernels/format/convert.h"
#include "probes/columns.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOTAL = AB_CAUSE_TOTAL, CAUSES = AB_UPDATE_CAUSES, LANES = AB_UPDATE_LANES, STRETCH = 64 };

static const char *const cause_names[CAUSES] = {"gradient", "weight_decay", "momentum", "eps", "update"};
static const double stopped_share = 0.9;

typedef ab_update_account account;

/* Sums of one block of a parameter in the current step. Sums in double are reduced in block order,
 * independent of the threads. */
typedef struct block_sums {
    account cause[CAUSES];
    unsigned causes; /* one bit per cause that the optimizer has */
    double moved;    /* stored change times computed change */
    double lr;
} block_sums;

enum { RATIOS = AB_RATIOS, LARGE = AB_RATIO_LARGE, LARGE_STRIDE = AB_RATIO_STRIDE };
enum { SIZES = AB_SIZES, SIZE_FIRST = AB_SIZE_FIRST };

typedef struct sizes {
    int64_t counts[SIZES], lost[SIZES];
} sizes;

typedef struct ledger {
    account cause[CAUSES];
    unsigned causes;
    double moved;
    int64_t nonzero[AB_COLUMNS], lost[AB_COLUMNS];
    int64_t stopped_since; /* step, or -1 */
    int64_t first_block;   /* index into the state's blocks */
    int64_t ratio[RATIOS]; /* of the last probed step that had updates */
    double lr;             /* of that step */
    sizes size;            /* of all probed steps */
} ledger;

/* What the device counted of a parameter in the current step. */
typedef struct counted_step {
    bool given;
    account total;
} counted_step;

typedef struct lost_updates {
    ab_probe_setup setup;
    ledger *param;          /* [params] */
    block_sums *block;      /* all parameters' blocks */
    uint32_t *thread_ratio; /* [params][threads][RATIOS], of the current step */
    sizes *thread_size;     /* [params][threads], of the current step */
    counted_step *counted;  /* [params] */
    ab_columns columns;
    int64_t steps;
} lost_updates;

static void destroy(void *state) {
    lost_updates *l = state;
    if (!l) return;
    free(l->param);
    free(l->block);
    free(l->thread_ratio);
    free(l->thread_size);
    free(l->counted);
    free(l);
}

static int64_t block_count(const ab_probe_param *param) {
    return (param->count + AB_UPDATE_BLOCK - 1) / AB_UPDATE_BLOCK;
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    lost_updates *l = calloc(1, sizeof *l);
    if (!l) return ab_fail(AB_NO_MEMORY, "probe lost_updates: out of memory");
    size_t params = (size_t)setup->params, blocks = 0;
    l->setup = *setup;
    l->columns.every = setup->every;
    l->param = calloc(params + 1, sizeof *l->param);
    l->thread_ratio = calloc(params * (size_t)setup->threads * RATIOS + 1, sizeof *l->thread_ratio);
    l->thread_size = calloc(params * (size_t)setup->threads + 1, sizeof *l->thread_size);
    l->counted = calloc(params + 1, sizeof *l->counted);
    for (size_t p = 0; p < params && l->param; p++) {
        l->param[p].stopped_since = -1;
        l->param[p].lr = setup->optimizer.lr;
        l->param[p].first_block = (int64_t)blocks;
        blocks += (size_t)block_count(&setup->param[p]);
    }
    l->block = calloc(blocks + 1, sizeof *l->block);
    if (!l->param || !l->block || !l->thread_ratio || !l->thread_size || !l->counted) {
        destroy(l);
        return ab_fail(AB_NO_MEMORY, "probe lost_updates: out of memory for %d parameters", setup->params);
    }
    *state = l;
    return AB_OK;
}

/* ---- one block ------------------------------------------------------------------------------- */

static double sum_lanes(const double *lane) {
    double sum = 0;
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

/* Counts are int and loops are kept simple so that compilers vectorise them. */
static int count_nonzero(const double *part, int64_t n) {
    int count = 0;
    for (int64_t i = 0; i < n; i++) count += part[i] != 0;
    return count;
}

/* `kept`: the stored weight after adding `part`. */
static int count_lost(const double *part, const float *kept, const float *before, int64_t n) {
    int count = 0;
    for (int64_t i = 0; i < n; i++) count += (kept[i] == before[i]) & (part[i] != 0);
    return count;
}

/* Sums of squares: element i goes into lane i % LANES, a fixed order. */
static double energy_of(const double *part, int64_t n) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += part[i + j] * part[i + j];
    for (; i < n; i++) lane[i % LANES] += part[i] * part[i];
    return sum_lanes(lane);
}

/* Most stretches of a block have no lost updates and are skipped. */
static double lost_energy_of(const double *part, const float *kept, const float *before, int64_t n) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + STRETCH <= n; i += STRETCH) {
        if (count_lost(part + i, kept + i, before + i, STRETCH) == 0) continue;
        for (int64_t k = i; k < i + STRETCH; k += LANES)
            for (int j = 0; j < LANES; j++)
                lane[j] += (double)kept[k + j] == (double)before[k + j] ? part[k + j] * part[k + j] : 0;
    }
    for (; i < n; i++) lane[i % LANES] += kept[i] == before[i] ? part[i] * part[i] : 0;
    return sum_lanes(lane);
}

static account settle(const double *part, const float *kept, const float *before, int64_t n) {
    account sum = {.nonzero = count_nonzero(part, n),
                   .lost = count_lost(part, kept, before, n),
                   .energy = energy_of(part, n)};
    if (sum.lost > 0) sum.lost_energy = lost_energy_of(part, kept, before, n);
    return sum;
}

/* The stored weight if only `part` were added. */
static void add_alone(const ab_format *format, const double *part, const float *before, int64_t n,
                      float *kept) {
    double packed[AB_UPDATE_BLOCK]; /* large enough for any storage type */
    for (int64_t i = 0; i < n; i++) kept[i] = before[i] + (float)part[i];
    if (format == &ab_format_fp32) return;
    ab_narrow(packed, format, kept, n);
    ab_widen(kept, packed, format, n);
}

/* Sum of (stored - before) * update. Weights that overflowed are excluded. */
static double moved(const double *change, const float *stored, const float *before, int64_t n) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += ((double)stored[i + j] - (double)before[i + j]) * change[i + j];
    for (; i < n; i++) lane[i % LANES] += ((double)stored[i] - (double)before[i]) * change[i];
    double sum = sum_lanes(lane);
    if (sum - sum == 0) return sum;
    sum = 0;
    for (i = 0; i < n; i++) sum += ab_finite_or_zero((double)stored[i] - (double)before[i]) * change[i];
    return sum;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Counts |update| / half spacing at the weight, of every `stride`-th element. */
static void count_ratios(const ab_format *format, const double *change, const float *before, int64_t n,
                         int64_t stride, uint32_t *ratio) {
    const int smallest = format->emin + 127;
    for (int64_t i = 0; i < n; i += stride)
        ratio[ab_ratio_bin(bits_of(before[i]), bits_of((float)change[i]), format->precision, smallest)] +=
            change[i] != 0;
}

/* The octave of |weight| / |update|, of every `stride`-th element. */
static void count_sizes(const double *change, const float *before, const float *stored, int64_t n,
                        int64_t stride, sizes *size) {
    for (int64_t i = 0; i < n; i += stride) {
        if (change[i] == 0 || before[i] == 0) continue;
        const double ratio = fabs((double)before[i] / change[i]);
        uint64_t bits;
        memcpy(&bits, &ratio, sizeof bits);
        const int bin = ab_size_bin(bits);
        size->counts[bin]++;
        size->lost[bin] += stored[i] == before[i];
    }
}

/* Returns `part` if all values are finite; else a copy in `room` with non-finite values replaced by 0. */
static const double *finite_part(const double *part, int64_t n, double *room) {
    if (energy_of(part, n) <= DBL_MAX) return part;
    for (int64_t i = 0; i < n; i++) room[i] = ab_finite_or_zero(part[i]);
    return room;
}

static void update(void *state, const ab_update_block *block) {
    lost_updates *l = state;
    const ab_format *format = l->setup.param[block->param].format;
    const int64_t n = block->n;
    double room[AB_UPDATE_BLOCK];
    float kept[AB_UPDATE_BLOCK];
    block_sums *sums = &l->block[l->param[block->param].first_block + block->first / AB_UPDATE_BLOCK];
    const double *change = finite_part(block->update, n, room);
    *sums = (block_sums){
        .causes = 1u << TOTAL, .moved = moved(change, block->stored, block->before, n), .lr = block->lr};
    sums->cause[TOTAL] = settle(change, block->stored, block->before, n);
    int place = block->param * l->setup.threads + block->thread;
    int64_t stride = l->setup.param[block->param].count < LARGE ? 1 : LARGE_STRIDE;
    count_ratios(format, change, block->before, n, stride, l->thread_ratio + (size_t)place * RATIOS);
    count_sizes(change, block->before, block->stored, n, stride, &l->thread_size[place]);
    for (int t = 0; t < AB_TERM_COUNT; t++) {
        if (!block->term[t]) continue;
        const double *part = finite_part(block->term[t], n, room);
        add_alone(format, part, block->before, n, kept);
        sums->cause[t] = settle(part, kept, block->before, n);
        sums->causes |= 1u << t;
    }
}

/* ---- a parameter, counted by the device ------------------------------------------------------ */

static void add_account(account *into, const account *from) {
    into->nonzero += from->nonzero;
    into->lost += from->lost;
    into->energy += from->energy;
    into->lost_energy += from->lost_energy;
}

static void counted(void *state, int param, const ab_update_counts *counts) {
    lost_updates *l = state;
    ledger *own = &l->param[param];
    account cause[CAUSES] = {{0}};
    double sum = 0;
    for (int64_t r = 0; r < counts->runs; r++) {
        for (int c = 0; c < CAUSES; c++) add_account(&cause[c], &counts->run[r].cause[c]);
        sum += counts->run[r].moved;
    }
    for (int c = 0; c < CAUSES; c++) add_account(&own->cause[c], &cause[c]);
    own->causes |= counts->terms | 1u << TOTAL;
    own->moved += sum;
    if (counts->lr > 0) own->lr = counts->lr;
    l->counted[param] = (counted_step){true, cause[TOTAL]};
    memcpy(l->thread_ratio + (size_t)(param * l->setup.threads) * RATIOS, counts->ratio,
           sizeof counts->ratio);
    sizes *size = &l->thread_size[param * l->setup.threads];
    memcpy(size->counts, counts->size, sizeof size->counts);
    memcpy(size->lost, counts->size_lost, sizeof size->lost);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The sums of a run of blocks, which is emptied. */
static ab_update_sums reduce_run(block_sums *block, int64_t blocks, ledger *own) {
    ab_update_sums run = {.ill = -1};
    for (int64_t b = 0; b < blocks; b++) {
        for (int c = 0; c < CAUSES; c++) add_account(&run.cause[c], &block[b].cause[c]);
        run.moved += block[b].moved;
        own->causes |= block[b].causes;
        if (block[b].lr > 0) own->lr = block[b].lr;
        block[b] = (block_sums){0};
    }
    return run;
}

/* Adds the runs of one parameter, in order, and returns the account of all updates. */
static account reduce_blocks(lost_updates *l, int p) {
    ledger *own = &l->param[p];
    const int64_t blocks = block_count(&l->setup.param[p]);
    account cause[CAUSES] = {{0}};
    double sum = 0;
    if (l->counted[p].given) {
        l->counted[p].given = false;
        return l->counted[p].total;
    }
    for (int64_t b = 0; b < blocks; b += AB_UPDATE_RUN) {
        const int64_t n = blocks - b < AB_UPDATE_RUN ? blocks - b : AB_UPDATE_RUN;
        const ab_update_sums run = reduce_run(&l->block[own->first_block + b], n, own);
        for (int c = 0; c < CAUSES; c++) add_account(&cause[c], &run.cause[c]);
        sum += run.moved;
    }
    for (int c = 0; c < CAUSES; c++) add_account(&own->cause[c], &cause[c]);
    own->moved += sum;
    return cause[TOTAL];
}

static void reduce_ratios(lost_updates *l, int p) {
    uint32_t *thread = l->thread_ratio + (size_t)(p * l->setup.threads) * RATIOS;
    int64_t *ratio = l->param[p].ratio;
    memset(ratio, 0, sizeof l->param[p].ratio);
    for (int i = 0; i < l->setup.threads; i++, thread += RATIOS)
        for (int bin = 0; bin < RATIOS; bin++) ratio[bin] += thread[bin];
    memset(thread - (size_t)l->setup.threads * RATIOS, 0, (size_t)l->setup.threads * RATIOS * sizeof *thread);
}

static void reduce_sizes(lost_updates *l, int p) {
    sizes *all = &l->param[p].size;
    for (int i = 0; i < l->setup.threads; i++) {
        sizes *one = &l->thread_size[p * l->setup.threads + i];
        for (int bin = 0; bin < SIZES; bin++) {
            all->counts[bin] += one->counts[bin];
            all->lost[bin] += one->lost[bin];
        }
        *one = (sizes){{0}, {0}};
    }
}

static bool has_stopped(const account *step) {
    return step->nonzero > 0 && (double)step->lost >= stopped_share * (double)step->nonzero;
}

static void step_end(void *state, int64_t step) {
    lost_updates *l = state;
    int halvings, column = ab_columns_at(&l->columns, step, &halvings);
    l->steps++;
    for (int p = 0; p < l->setup.params; p++) {
        ledger *own = &l->param[p];
        ab_columns_halve(own->nonzero, halvings);
        ab_columns_halve(own->lost, halvings);
        account sums = reduce_blocks(l, p);
        reduce_sizes(l, p);
        if (sums.nonzero == 0) continue; /* a skipped step has no updates */
        reduce_ratios(l, p);
        own->nonzero[column] += sums.nonzero;
        own->lost[column] += sums.lost;
        if (!has_stopped(&sums))
            own->stopped_since = -1;
        else if (own->stopped_since < 0)
            own->stopped_since = step;
    }
}

/* ---- report ---------------------------------------------------------------------------------- */

static double share(double part, double whole) { return whole > 0 ? part / whole : (double)NAN; }

static void report_account(const char *key, const account *sum, ab_probe_sink *sink) {
    sink->begin_object(sink, key);
    sink->integer(sink, "nonzero", sum->nonzero);
    sink->integer(sink, "lost", sum->lost);
    sink->number(sink, "energy", sum->energy);
    sink->number(sink, "lost_energy", sum->lost_energy);
    sink->number(sink, "lost_share", share((double)sum->lost, (double)sum->nonzero));
    sink->number(sink, "lost_energy_share", share(sum->lost_energy, sum->energy));
    sink->end(sink);
}

/* The `part` quantile of the ratios: the upper end of its bin. NAN without updates. */
static double ratio_point(const ledger *own, double part) {
    int64_t all = 0, below = 0;
    for (int bin = 0; bin < RATIOS; bin++) all += own->ratio[bin];
    for (int bin = 0; bin < RATIOS; bin++) {
        below += own->ratio[bin];
        if (all == 0 || (double)below < part * (double)all) continue;
        uint32_t bits = (uint32_t)(bin + 1 + AB_RATIO_BASE) << AB_RATIO_SHIFT;
        float end;
        memcpy(&end, &bits, sizeof end);
        return (double)end;
    }
    return (double)NAN;
}

static void report_freeze(const ledger *own, ab_probe_sink *sink) {
    sink->begin_object(sink, "freeze");
    sink->number(sink, "lr", own->lr);
    sink->number(sink, "lr_half_lost", own->lr / ratio_point(own, 0.5));
    sink->number(sink, "lr_stops", own->lr / ratio_point(own, stopped_share));
    if (own->stopped_since >= 0)
        sink->integer(sink, "stopped_since_step", own->stopped_since);
    else
        sink->text(sink, "stopped_since_step", NULL);
    sink->end(sink);
}

/* From the first to the last octave that has any. */
static void report_sizes(const sizes *size, ab_probe_sink *sink) {
    int first = 0, end = SIZES;
    while (first < end && size->counts[first] == 0) first++;
    while (end > first && size->counts[end - 1] == 0) end--;
    sink->begin_object(sink, "sizes");
    sink->integer(sink, "first", first + SIZE_FIRST);
    sink->integers(sink, "counts", size->counts + first, end - first);
    sink->integers(sink, "lost", size->lost + first, end - first);
    sink->end(sink);
}

static void report_param(const lost_updates *l, int p, ab_probe_sink *sink) {
    const ab_probe_param *about = &l->setup.param[p];
    const ledger *own = &l->param[p];
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", about->name);
    sink->text(sink, "layer", about->layer);
    sink->text(sink, "format", about->format->name);
    report_account(cause_names[TOTAL], &own->cause[TOTAL], sink);
    for (int c = 0; c < AB_TERM_COUNT; c++)
        if (own->causes >> c & 1u)
            report_account(cause_names[c], &own->cause[c], sink);
        else
            sink->text(sink, cause_names[c], NULL);
    sink->number(sink, "direction_quality", share(own->moved, own->cause[TOTAL].energy));
    report_freeze(own, sink);
    sink->begin_object(sink, "steps");
    ab_columns_report(&l->columns, sink);
    sink->integers(sink, "nonzero", own->nonzero, l->columns.count);
    sink->integers(sink, "lost", own->lost, l->columns.count);
    sink->end(sink);
    report_sizes(&own->size, sink);
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    const lost_updates *l = state;
    sink->begin_array(sink, "lost_updates");
    for (int p = 0; p < l->setup.params; p++) report_param(l, p, sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_lost_updates;
const ab_probe_kind ab_probe_lost_updates = {
    .name = "lost_updates",
    .text = "weight updates that storing the weight lost, by cause; when a layer stops",
    .standard = true,
    .create = create,
    .destroy = destroy,
    .update = update,
    .counted = counted,
    .step_end = step_end,
    .report = report,
};
