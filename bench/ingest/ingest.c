/* Chooses the reader of an input. */
#include "bench/ingest/ingest.h"

#include <assert.h>

static const ab_input_kind *const kinds[] = {
#define AB_INPUT_KIND(name) &ab_input_kind_##name,
#include "bench/ingest/inputs.def"
#undef AB_INPUT_KIND
};

int ab_input_kind_count(void) { return (int)AB_COUNT_OF(kinds); }

const ab_input_kind *ab_input_kind_at(int i) {
    assert(kinds[i] != NULL);
    return kinds[i];
}

const ab_input_kind *ab_input_kind_of(const char *path) {
    for (int i = 0; i < ab_input_kind_count(); i++)
        if (ab_input_kind_at(i)->recognise(path)) return kinds[i];
    return NULL;
}

static const char *name_of(const ab_input_kind *kind) { return kind ? kind->name : "none that is known"; }

ab_status ab_ingest(const ab_ingest_request *request, cJSON **document) {
    const ab_input_kind *kind = ab_input_kind_of(request->path[0]);
    for (int i = 1; i < request->paths; i++) {
        const ab_input_kind *other = ab_input_kind_of(request->path[i]);
        if (other != kind)
            return ab_fail(AB_INPUT, "%s: expected another input of the kind of %s (%s), found %s",
                           request->path[i], request->path[0], name_of(kind), name_of(other));
    }
    return (kind ? kind : ab_input_kind_at(0))->read(request, document);
}
