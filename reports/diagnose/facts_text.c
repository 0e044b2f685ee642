/* The facts of every cell as text and as JSON. */
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/diagnose/diagnose.h"
#include "reports/diagnose/facts/facts_list.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

static void print_fact(const ab_facts *facts, const ab_fact_row *row, FILE *out) {
    const ab_fact fact = row->get(facts);
    const double limit = ab_fact_limit(row, *facts->limits);
    if (isnan(fact.value)) {
        ab_print(out, "    %-18s not in the record: %s\n", row->name, row->text);
        return;
    }
    ab_print(out, "    %-18s %.4g %s", row->name, fact.value, row->unit);
    if (!isnan(limit)) ab_print(out, " (%s %.4g)", row->threshold, limit);
    if (fact.step != AB_STEP_UNKNOWN) fprintf(out, ", step %d", fact.step);
    if (fact.place[0]) ab_print(out, "  [/cells/%d%s]", facts->index, fact.place);
    putc('\n', out);
}

static ab_status print_facts(const ab_diagnosis *diagnosis, void *argument) {
    char id[160];
    const ab_facts *facts = &diagnosis->found.facts;
    ab_text_clean(id, sizeof id, ab_json_text(facts->cell, "id", "?"));
    ab_print(argument, "%s: facts\n", id);
    for (int i = 0; i < ab_fact_count(); i++) print_fact(facts, ab_fact_at(i), argument);
    return AB_OK;
}

ab_status ab_diagnose_print_facts(const cJSON *document, FILE *out) {
    return ab_diagnose_each(document, print_facts, out, NULL);
}

static cJSON *fact_json(const ab_facts *facts, const ab_fact_row *row) {
    const ab_fact fact = row->get(facts);
    char place[AB_FACT_PLACE + 24];
    cJSON *object = cJSON_CreateObject();
    ab_text_exact(place, sizeof place, "/cells/%d%s", facts->index, fact.place);
    cJSON_AddStringToObject(object, "name", row->name);
    ab_json_add_number(object, "value", fact.value);
    cJSON_AddStringToObject(object, "unit", row->unit);
    ab_json_add_number(object, "step", fact.step == AB_STEP_UNKNOWN ? (double)NAN : fact.step);
    cJSON_AddItemToObject(object, "place", fact.place[0] ? cJSON_CreateString(place) : cJSON_CreateNull());
    ab_json_add_number(object, "threshold", ab_fact_limit(row, *facts->limits));
    return object;
}

static ab_status add_facts(const ab_diagnosis *diagnosis, void *argument) {
    const ab_facts *facts = &diagnosis->found.facts;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "cell", ab_json_text(facts->cell, "id", ""));
    cJSON *list = cJSON_AddArrayToObject(object, "facts");
    for (int i = 0; i < ab_fact_count(); i++) cJSON_AddItemToArray(list, fact_json(facts, ab_fact_at(i)));
    return cJSON_AddItemToArray(argument, object) ? AB_OK : ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
}

ab_status ab_diagnose_facts_json(const cJSON *document, cJSON **json) {
    *json = cJSON_CreateArray();
    return *json ? ab_diagnose_each(document, add_facts, *json, NULL)
                 : ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
}
