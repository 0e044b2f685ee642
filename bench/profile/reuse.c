#include "bench/profile/reuse.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

typedef struct last_use {
    int64_t last; /* time of the last touch, from 1; 0: none */
    int64_t pass; /* of that touch */
    double read;  /* bytes read in that pass and not written since */
    int size;     /* that they were counted at */
} last_use;

enum { LEAST_GRANULE = 1024, MOST_GRANULES = 1 << 20 };

struct ab_reuse {
    int64_t bytes_each, granules, now, most, pass;
    last_use *granule;
    int64_t *live; /* Fenwick tree over times 1 to most: 1 where it is a granule's last touch */
};

int64_t ab_reuse_granule(int64_t bytes) {
    int64_t granule = LEAST_GRANULE;
    while (bytes / granule >= MOST_GRANULES) granule *= 2;
    return granule;
}

ab_status ab_reuse_create(int64_t bytes, int64_t touched, ab_reuse **reuse) {
    ab_reuse *r = *reuse = calloc(1, sizeof *r);
    if (!r) return ab_fail(AB_NO_MEMORY, "profile: out of memory");
    r->bytes_each = ab_reuse_granule(bytes);
    r->granules = bytes / r->bytes_each + 1;
    r->most = touched;
    r->granule = calloc((size_t)r->granules, sizeof *r->granule);
    r->live = calloc((size_t)touched + 1, sizeof *r->live);
    if (r->granule && r->live) return AB_OK;
    ab_reuse_destroy(r);
    *reuse = NULL;
    return ab_fail(AB_NO_MEMORY, "profile: out of memory");
}

void ab_reuse_destroy(ab_reuse *r) {
    if (!r) return;
    free(r->granule);
    free(r->live);
    free(r);
}

int64_t ab_reuse_granules(int64_t granule, int64_t first, int64_t bytes) {
    return bytes > 0 ? (first + bytes - 1) / granule - first / granule + 1 : 0;
}

void ab_reuse_begin_pass(ab_reuse *r) { r->pass++; }

/* ---- distances ------------------------------------------------------------------------------- */

static void add_live(ab_reuse *r, int64_t time, int64_t value) {
    for (; time <= r->most; time += time & -time) r->live[time] += value;
}

static int64_t live_until(const ab_reuse *r, int64_t time) {
    int64_t count = 0;
    for (; time > 0; time -= time & -time) count += r->live[time];
    return count;
}

/* Granules touched since g was, and g; then g is the last. */
static int size_of_touch(ab_reuse *r, last_use *g) {
    assert(r->now < r->most);
    int size = AB_LIMIT_SIZES - 1;
    if (g->last) {
        const int64_t since = live_until(r, r->now) - live_until(r, g->last) + 1;
        size = ab_machine_limits_holding((double)since * (double)r->bytes_each);
        add_live(r, g->last, -1);
    }
    g->last = ++r->now;
    add_live(r, g->last, 1);
    return size;
}

/* A granule that the pass has touched before lies in the nearest cache; of what it read there, writing makes
 * updates. */
static void count(ab_reuse *r, last_use *g, double bytes, bool written, ab_traffic *traffic) {
    const bool again = g->last && g->pass == r->pass;
    const int size = size_of_touch(r, g);
    const double updated = again && written ? fmin(bytes, g->read) : 0;
    if (!again) {
        g->size = size;
        g->read = 0;
    }
    traffic->read[g->size] -= updated;
    traffic->updated[g->size] += updated;
    (written ? traffic->written : traffic->read)[again ? 0 : size] += bytes - updated;
    g->read += written ? -updated : again ? 0 : bytes;
    g->pass = r->pass;
}

void ab_reuse_touch(ab_reuse *r, int64_t first, int64_t bytes, bool written, ab_traffic *traffic) {
    const int64_t end = first + bytes;
    for (int64_t at = first; at < end;) {
        const int64_t number = at / r->bytes_each, next = (number + 1) * r->bytes_each;
        count(r, &r->granule[number], (double)((next < end ? next : end) - at), written, traffic);
        at = next;
    }
}
