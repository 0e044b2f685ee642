/* A loss scaler as a newcomer would add it: always 4, never skips. */
#include "bench/amp/scaler/scaler.h"

static void start(ab_scaler *scaler) { scaler->scale = 4; }

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    (void)scaler, (void)seen;
    return (ab_scaler_outcome){.skip = false};
}

extern const ab_scaler_kind ab_scaler_added_scaler;
const ab_scaler_kind ab_scaler_added_scaler = {
    .name = "added_scaler", .origin = "nowhere", .text = "always 4", .start = start, .update = update};
