/* Judges cells again with thresholds moved one at a time. Decides nothing by itself. */
#include "reports/diagnose/jitter.h"

#include "kernels/core/show.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct jitter {
    ab_cells cells;
    const ab_thresholds *limits;
    double share;
    FILE *out;
    cJSON *list;
    ab_diagnosis *again;
    int changes;
} jitter;

/* Two texts that differ in numbers at most. */
static bool same_but_numbers(const char *a, const char *b) {
    while (*a || *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            char *a_end, *b_end;
            (void)strtod(a, &a_end);
            (void)strtod(b, &b_end);
            a = a_end;
            b = b_end;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return true;
}

static bool same_options(const ab_remedy *a, const ab_remedy *b) {
    if (a->options != b->options) return false;
    for (int i = 0; i < a->options; i++)
        if (!same_but_numbers(a->option[i], b->option[i])) return false;
    return true;
}

static const char *layer_of(const ab_diagnosis *d) { return d->verdicts > 0 ? d->verdict[0].layer : ""; }

static bool says_the_same(const ab_diagnosis *a, const ab_diagnosis *b) {
    if (strcmp(ab_diagnosis_first(a), ab_diagnosis_first(b)) != 0) return false;
    return a->verdicts == 0 || (strcmp(layer_of(a), layer_of(b)) == 0 &&
                                same_options(&a->verdict[0].remedy, &b->verdict[0].remedy));
}

static void note(jitter *j, const char *name, double value) {
    const cJSON *cell = j->again->found.facts.cell;
    const char *layer = layer_of(j->again);
    j->changes++;
    if (j->out) {
        char id[160];
        ab_text_clean(id, sizeof id, ab_json_text(cell, "id", "?"));
        ab_print(j->out, "%s: with %s %g: %s%s%s\n", id, name, value, ab_diagnosis_first(j->again),
                 layer[0] ? " in " : "", layer);
    }
    if (!j->list) return;
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "cell", ab_json_text(cell, "id", ""));
    cJSON_AddStringToObject(item, "threshold", name);
    cJSON_AddNumberToObject(item, "value", value);
    cJSON_AddStringToObject(item, "id", ab_diagnosis_first(j->again));
    if (layer[0])
        cJSON_AddStringToObject(item, "layer", layer);
    else
        cJSON_AddNullToObject(item, "layer");
    cJSON_AddItemToArray(j->list, item);
}

/* A ratio between a half and two is a distance from 1, so the distance is moved: 0.9 becomes 0.875, not 1.1.
 */
static double moved_by(double value, double share) {
    const bool ratio = value > 0.5 && value < 2 && value != 1;
    return ratio ? 1 + (value - 1) * (1 + share) : value * (1 + share);
}

/* Judges the cell of d again with row i moved in one direction. */
static ab_status move(jitter *j, const ab_diagnosis *d, int i, double share) {
    ab_thresholds moved = *j->limits;
    double *value = ab_threshold_of(&moved, i);
    *value = moved_by(*value, share);
    AB_TRY(ab_diagnose_by(&j->cells, d->found.facts.index, &moved, j->again));
    if (!says_the_same(d, j->again)) note(j, ab_threshold_at(i)->name, *value);
    return AB_OK;
}

static ab_status move_each(const ab_diagnosis *d, void *argument) {
    jitter *j = argument;
    for (int i = 0; i < ab_threshold_count(); i++) {
        if (ab_threshold_at(i)->kind == AB_THRESHOLD_derived) continue;
        AB_TRY(move(j, d, i, -j->share));
        AB_TRY(move(j, d, i, j->share));
    }
    return AB_OK;
}

ab_status ab_diagnose_jitter(const cJSON *document, const ab_thresholds *limits, double share, FILE *out,
                             cJSON *list) {
    jitter j = {.limits = limits, .share = share, .out = out, .list = list};
    j.again = malloc(sizeof *j.again);
    if (!j.again) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    ab_status status = ab_cells_create(document, &j.cells);
    if (status == AB_OK) status = ab_diagnose_each_by(document, limits, move_each, &j, NULL);
    ab_cells_free(&j.cells);
    if (status == AB_OK && out)
        ab_print(out, "thresholds moved by %g %%, one at a time: %d change%s what is said first\n",
                 100 * share, j.changes, j.changes == 1 ? "s" : "");
    free(j.again);
    return status;
}
