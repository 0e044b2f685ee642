/* The descriptors of causes as text and as JSON. Decides nothing. */
#include "reports/diagnose/explain.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

/* A symptom that the verdict's cause predicts is in the record. */
static bool is_seen(const ab_case *c, int i) { return ab_symptoms_of(c) & (1U << i); }
static bool is_predicted(const ab_verdict *v, int i) { return v->rule && v->rule->predicts & (1U << i); }

static int need_count(const ab_verdict *v) {
    int n = 0;
    while (v->rule && n < AB_RULE_NEEDS && v->rule->needs[n]) n++;
    return n;
}

static int refutation_count(const ab_verdict *v) {
    int n = 0;
    while (v->rule && n < AB_RULE_REFUTATIONS && v->rule->refuted_by[n]) n++;
    return n;
}

/* ---- text ------------------------------------------------------------------------------------ */

void ab_explain_print(const ab_case *c, const ab_verdict *v, FILE *out) {
    for (int i = 0; i < need_count(v); i++)
        if (!v->rule->needs[i]->there(c))
            ab_print(out, "    not recorded: %s: %s\n", v->rule->needs[i]->text,
                     ab_need_get(c, v->rule->needs[i]));
    for (int i = 0; i < AB_SYMPTOMS; i++) {
        if (is_predicted(v, i))
            ab_print(out, "    predicts %s: %s\n", ab_symptom_text(i), is_seen(c, i) ? "seen" : "not seen");
        if (v->unexplained & (1U << i)) ab_print(out, "    leaves unexplained: %s\n", ab_symptom_text(i));
    }
    for (int i = 0; i < refutation_count(v); i++)
        ab_print(out, "    would be refuted if: %s\n", v->rule->refuted_by[i]->text);
}

void ab_explain_ruled_out(const ab_diagnosis *d, FILE *out) {
    for (int i = 0; i < d->ruled_out; i++)
        ab_print(out, "  not %s: %s\n", d->not_cause[i].rule->id, d->not_cause[i].by->text);
}

void ab_explain_decision(const ab_decision *decision, FILE *out) {
    if (decision->count == 0) return;
    ab_print(out, "    to decide between %s and %s: run with", decision->between[0], decision->between[1]);
    for (int i = 0; i < decision->remedy.options; i++) ab_print(out, " %s", decision->remedy.option[i]);
    ab_print(out, ": healthy only if it is %s\n", decision->between[decision->healthy_if]);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_needs(const ab_case *c, const ab_verdict *v, cJSON *object) {
    cJSON *list = cJSON_AddArrayToObject(object, "needs");
    for (int i = 0; i < need_count(v); i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "text", v->rule->needs[i]->text);
        cJSON_AddStringToObject(item, "get", ab_need_get(c, v->rule->needs[i]));
        cJSON_AddBoolToObject(item, "recorded", v->rule->needs[i]->there(c));
        cJSON_AddItemToArray(list, item);
    }
}

static void add_predictions(const ab_case *c, const ab_verdict *v, cJSON *object) {
    cJSON *list = cJSON_AddArrayToObject(object, "predicts");
    for (int i = 0; i < AB_SYMPTOMS; i++) {
        if (!is_predicted(v, i)) continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "symptom", ab_symptom_text(i));
        cJSON_AddBoolToObject(item, "seen", is_seen(c, i));
        cJSON_AddItemToArray(list, item);
    }
}

void ab_explain_json(const ab_case *c, const ab_verdict *v, cJSON *object) {
    add_needs(c, v, object);
    add_predictions(c, v, object);
    cJSON *list = cJSON_AddArrayToObject(object, "refuted_by");
    for (int i = 0; i < refutation_count(v); i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(v->rule->refuted_by[i]->text));
}

static void add_decision(const ab_decision *decision, cJSON *object) {
    if (decision->count == 0) {
        cJSON_AddNullToObject(object, "decide");
        return;
    }
    cJSON *decide = cJSON_AddObjectToObject(object, "decide"),
          *between = cJSON_AddArrayToObject(decide, "between"),
          *options = cJSON_AddArrayToObject(decide, "options");
    for (int i = 0; i < decision->count; i++)
        cJSON_AddItemToArray(between, cJSON_CreateString(decision->between[i]));
    for (int i = 0; i < decision->remedy.options; i++)
        cJSON_AddItemToArray(options, cJSON_CreateString(decision->remedy.option[i]));
    cJSON_AddStringToObject(decide, "healthy_if", decision->between[decision->healthy_if]);
}

void ab_explain_cell_json(const ab_diagnosis *d, cJSON *object) {
    cJSON *list = cJSON_AddArrayToObject(object, "ruled_out");
    for (int i = 0; i < d->ruled_out; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "id", d->not_cause[i].rule->id);
        cJSON_AddStringToObject(item, "by", d->not_cause[i].by->text);
        cJSON_AddItemToArray(list, item);
    }
    add_decision(&d->decision, object);
}
