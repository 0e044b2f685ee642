/* What `ampbench diagnose` is given, as a record: a result document is one, others are read into one. A kind
 * of input is one file with an ab_input_kind and one line in inputs.def.
 *
 * Knows no kind by name. A kind that is not a result document sets cells[].observed_by and a property of the
 * document of its own, so that reports can tell (reports/record/observed.h). */
#ifndef AB_BENCH_INGEST_INGEST_H
#define AB_BENCH_INGEST_INGEST_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

AB_BEGIN_DECLS

/* What to read; all texts are borrowed. */
typedef struct ab_ingest_request {
    const char *const *path; /* files or folders, in the order given */
    int paths;               /* at least 1 */
} ab_ingest_request;

typedef struct ab_input_kind {
    const char *name; /* "result": also what messages call it */
    const char *text; /* one line of help: what a path may be */
    /* Whether `path` is of this kind, by the start of the file or the names in the folder. Says nothing of
     * paths that cannot be read. */
    bool (*recognise)(const char *path);
    /* Reads all paths of the request, which are of this kind, as one checked record, owned by the caller. */
    ab_status (*read)(const ab_ingest_request *request, cJSON **document);
} ab_input_kind;

#define AB_INPUT_KIND(name) extern const ab_input_kind ab_input_kind_##name;
#include "bench/ingest/inputs.def"
#undef AB_INPUT_KIND

/* The rows of inputs.def, in order: i in [0, count). */
int ab_input_kind_count(void);
const ab_input_kind *ab_input_kind_at(int i);

/* The kind that `path` is of; NULL: none. */
const ab_input_kind *ab_input_kind_of(const char *path);

/* Reads the inputs, all of one kind, as a record that the caller deletes. AB_INPUT for inputs of different
 * kinds, else what the kind's reader says. */
AB_MUST_CHECK ab_status ab_ingest(const ab_ingest_request *request, cJSON **document);

AB_END_DECLS

#endif
