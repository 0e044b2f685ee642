/* Checksums of ranks, compared tensor by tensor. */
#include "kernels/collective/replicas.h"

#include <string.h>

enum { LANES = 4 };

/* One step of FNV-1a on a word: for a given word one-to-one in the state, so that a difference stays. */
static uint64_t mix(uint64_t state, uint64_t word) { return (state ^ word) * 0x100000001b3u; }

uint64_t ab_replica_checksum(const float *value, int64_t n) {
    uint64_t lane[LANES], all = 0xcbf29ce484222325u;
    for (int k = 0; k < LANES; k++) lane[k] = all + (uint64_t)k;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &value[i], sizeof word);
        lane[i % LANES] = mix(lane[i % LANES], word);
    }
    for (int k = 0; k < LANES; k++) all = mix(all, lane[k]);
    return all;
}

/* How many ranks have the checksum of rank `like`. */
static int alike(const uint64_t *checksum, int ranks, int tensors, int like) {
    int count = 0;
    for (int r = 0; r < ranks; r++) count += checksum[r * tensors] == checksum[like * tensors];
    return count;
}

/* The lowest rank whose checksum most ranks have. */
static int typical(const uint64_t *checksum, int ranks, int tensors) {
    int best = 0, most = alike(checksum, ranks, tensors, 0);
    for (int r = 1; r < ranks && 2 * most <= ranks; r++) {
        const int count = alike(checksum, ranks, tensors, r);
        if (count <= most) continue;
        most = count;
        best = r;
    }
    return best;
}

/* Of one tensor, checksum[r * tensors]: the first rank that is not like most; -1: none. */
static int first_other(const uint64_t *checksum, int ranks, int tensors, int *others) {
    int first = -1;
    const int like = typical(checksum, ranks, tensors);
    *others = ranks - alike(checksum, ranks, tensors, like);
    for (int r = ranks - 1; r >= 0 && *others > 0; r--)
        if (checksum[r * tensors] != checksum[like * tensors]) first = r;
    return first;
}

ab_parting ab_replicas_compare(const uint64_t *checksum, int ranks, int tensors) {
    ab_parting found = {.rank = -1, .tensor = -1};
    for (int t = 0; t < tensors; t++) {
        int others;
        const int rank = first_other(checksum + t, ranks, tensors, &others);
        if (rank < 0) continue;
        if (found.tensors++ > 0) continue;
        found.rank = rank;
        found.tensor = t;
        found.ranks = others;
    }
    return found;
}
