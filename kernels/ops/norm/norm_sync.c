/* Statistics of several ranks. */
#include "kernels/ops/norm/norm_sync.h"

#include <math.h>

void ab_sync_send(ab_sync_form form, const double *mean, const double *m2, double n, double eps,
                  int64_t channels, float *own) {
    for (int64_t c = 0; c < channels; c++) {
        const float variance = (float)(m2[c] / n);
        own[c] = (float)mean[c];
        own[channels + c] = form == AB_SYNC_APEX ? variance : (float)(1.0 / sqrt((double)variance + eps));
    }
    own[2 * channels] = (float)n;
}

/* n values with mean and m2, to which those of another rank are added. */
typedef struct moments {
    float n, mean, m2;
} moments;

static void merge_torch(moments *m, float count, float mean, float invstd, float eps) {
    const float deviation = 1.0F / invstd, m2 = (deviation * deviation - eps) * count,
                factor = (float)(1.0 / (double)(m->n + count)), delta = m->mean - mean;
    m->m2 += m2 + delta * delta * m->n * count * factor;
    m->mean = m->n * factor * m->mean + count * factor * mean;
    m->n += count;
}

static void merge_apex(moments *m, float count, float mean, float variance) {
    const float factor = 1.0F / fmaxf(1.0F, m->n + count), delta = m->mean - mean;
    m->mean = (mean * count + m->mean * m->n) * factor;
    m->m2 += variance * count + delta * delta * count * m->n * factor;
    m->n += count;
}

void ab_sync_merge(ab_sync_form form, const float *all, int ranks, double eps, int64_t channels, double *mean,
                   double *m2, double *n) {
    for (int64_t c = 0; c < channels; c++) {
        moments m = {0, 0, 0};
        for (int r = 0; r < ranks; r++) {
            const float *rank = all + r * ab_sync_floats(channels);
            if (form == AB_SYNC_APEX)
                merge_apex(&m, rank[2 * channels], rank[c], rank[channels + c]);
            else
                merge_torch(&m, rank[2 * channels], rank[c], rank[channels + c], (float)eps);
        }
        mean[c] = (double)m.mean;
        m2[c] = (double)m.m2;
        *n = (double)m.n;
    }
}

ab_status ab_sync_sums(const ab_norm_sync *sync, double n, double total, int64_t channels, float *own,
                       double *sums) {
    const bool means = sync->form == AB_SYNC_APEX;
    const float *all;
    for (int64_t c = 0; c < 2 * channels; c++) own[c] = (float)(means ? sums[c] / n : sums[c]);
    AB_TRY(sync->gather(sync->context, own, 2 * channels, &all));
    for (int64_t c = 0; c < 2 * channels; c++) {
        float sum = 0;
        for (int r = 0; r < sync->ranks; r++) sum += all[r * 2 * channels + c];
        sums[c] = means ? (double)(sum / (float)sync->ranks) * total : (double)sum;
    }
    return AB_OK;
}
