/* Checkpoints of other training loops: a folder or a file; two of one run are compared. */
#include "bench/checkpoint/record.h"
#include "bench/ingest/ingest.h"

static bool recognise(const char *path) { return ab_checkpoint_recognise(path); }

static ab_status read_both(const ab_ingest_request *request, ab_checkpoint *last, cJSON **document) {
    ab_checkpoint first;
    if (request->paths == 1) return ab_checkpoint_record(NULL, last, document);
    ab_status status = ab_checkpoint_open(request->path[0], &first);
    if (status == AB_OK) status = ab_checkpoint_record(&first, last, document);
    ab_checkpoint_close(&first);
    return status;
}

static ab_status read_checkpoint(const ab_ingest_request *request, cJSON **document) {
    ab_checkpoint last;
    if (request->paths > 2)
        return ab_fail(AB_USAGE, "diagnose: expected one checkpoint, or two of one run, found %d",
                       request->paths);
    ab_status status = ab_checkpoint_open(request->path[request->paths - 1], &last);
    if (status == AB_OK) status = read_both(request, &last, document);
    ab_checkpoint_close(&last);
    return status;
}

const ab_input_kind ab_input_kind_checkpoint = {
    .name = "checkpoint",
    .text = "CHECKPOINT: a folder or file that a framework saved; two of one run: what moved between them",
    .recognise = recognise,
    .read = read_checkpoint,
};
