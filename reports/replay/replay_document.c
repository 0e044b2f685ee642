/* Replayed scalers as a JSON document, and which of them are best. */
#include "reports/replay/replay_result.h"

#include "reports/record/json.h"

#include <math.h>

/* What is flushed, or if that is not told, how low the scale is: less of it is better. */
static double cost_of(const ab_replay_outcome *o) {
    return isnan(o->flushed) ? -o->mean_octaves : o->flushed;
}

static bool beats(const ab_replay_outcome *a, const ab_replay_outcome *b) {
    return a->skipped <= b->skipped && a->unseen <= b->unseen && cost_of(a) <= cost_of(b) &&
           (a->skipped < b->skipped || a->unseen < b->unseen || cost_of(a) < cost_of(b));
}

void ab_replay_judge(ab_replay_result *result) {
    for (int i = 0; i < result->rows; i++) {
        const ab_replay_outcome *own = &result->row[i].most;
        result->row[i].best = own->unseen == 0 && !own->stops;
        for (int j = 0; j < result->rows && result->row[i].best; j++)
            result->row[i].best = !beats(&result->row[j].most, own);
    }
}

static cJSON *outcome_json(const ab_replay_source *source, const ab_replay_outcome *o) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "skipped", (double)o->skipped);
    cJSON_AddNumberToObject(object, "skipped_at_start", (double)o->wasted);
    cJSON_AddNumberToObject(object, "overflowed_unseen", (double)o->unseen);
    cJSON_AddNumberToObject(object, "steps_agreed", (double)o->agreed);
    cJSON_AddNumberToObject(object, "decisions_differing", (double)o->differing);
    cJSON_AddNumberToObject(object, "steps_beyond", (double)o->beyond);
    ab_json_add_number(object, "final_scale", o->final_scale);
    ab_json_add_number(object, "mean_log2_scale", o->mean_octaves);
    ab_json_add_number(object, "flushed_share", o->flushed);
    ab_json_add_number(object, "flushed_energy", o->energy);
    ab_json_add_text(object, "worst_layer", o->worst >= 0 && o->energy > 0 ? source->layer[o->worst] : NULL);
    ab_json_add_number(object, "worst_layer_flushed_share", o->worst >= 0 ? o->worst_flushed : (double)NAN);
    ab_json_add_number(object, "worst_layer_flushed_energy", o->worst >= 0 ? o->worst_energy : (double)NAN);
    ab_json_add_text(object, "fault", o->fault);
    ab_json_add_number(object, "fault_step", o->fault ? (double)o->fault_step : (double)NAN);
    return object;
}

static cJSON *row_json(const ab_replay_source *source, const ab_replay_row *row) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "scaler", row->scaler);
    cJSON_AddStringToObject(object, "dialect", row->dialect);
    cJSON_AddBoolToObject(object, "best", row->best);
    cJSON_AddItemToObject(object, "least", outcome_json(source, &row->least));
    cJSON_AddItemToObject(object, "most", outcome_json(source, &row->most));
    return object;
}

cJSON *ab_replay_document(const ab_replay_result *result) {
    const ab_replay_source *s = &result->source;
    cJSON *document = cJSON_CreateObject(), *rows;
    cJSON_AddStringToObject(document, "schema", "ampbench-replay");
    cJSON_AddStringToObject(document, "schema_version", "1.0");
    cJSON_AddStringToObject(document, "path", s->path);
    cJSON_AddStringToObject(document, "kind", s->kind);
    ab_json_add_text(document, "cell", s->cell[0] ? s->cell : NULL);
    cJSON_AddStringToObject(document, "half_format", s->half);
    cJSON_AddNumberToObject(document, "steps", (double)s->steps);
    cJSON_AddNumberToObject(document, "steps_bounded", (double)s->bounded);
    cJSON_AddNumberToObject(document, "stride", (double)s->stride);
    ab_json_add_number(document, "first_scale", s->first_scale);
    cJSON_AddItemToObject(document, "recorded", outcome_json(s, &result->recorded));
    rows = cJSON_AddArrayToObject(document, "scalers");
    for (int i = 0; i < result->rows; i++) cJSON_AddItemToArray(rows, row_json(s, &result->row[i]));
    return document;
}
