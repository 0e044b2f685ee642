/* Reading of probe.facts and probe.groups. */
#include "reports/diagnose/facts/loop.h"

#include "reports/record/json.h"

#include <math.h>
#include <string.h>

ab_stated ab_stated_of(const ab_facts *facts, const char *name) {
    ab_stated found = {
        .place = "", .last = (double)NAN, .least = (double)NAN, .largest = (double)NAN, .index = -1};
    const cJSON *entry;
    int index = -1;
    cJSON_ArrayForEach(entry, ab_json_at(facts->document, "probe.facts")) {
        index++;
        if (strcmp(ab_json_text(entry, "name", ""), name) != 0) continue;
        const double largest = ab_json_number(entry, "largest", (double)NAN);
        found.entries++;
        if (found.known && !(largest > found.largest)) continue;
        found.known = true;
        found.place = ab_json_text(entry, "place", "");
        found.last = ab_json_number(entry, "last", (double)NAN);
        found.least = ab_json_number(entry, "least", (double)NAN);
        found.largest = largest;
        found.times = (int)ab_json_number(entry, "times", 0);
        found.first_step = (int)ab_json_number(entry, "first_step", 0);
        found.index = index;
    }
    return found;
}

static const cJSON *first_group(const ab_facts *facts) {
    return cJSON_GetArrayItem(ab_json_at(facts->document, "probe.groups"), 0);
}

double ab_loop_number(const ab_facts *facts, const char *key) {
    return ab_json_number(first_group(facts), key, 0);
}

bool ab_is_loop(const ab_facts *facts) { return first_group(facts) != NULL; }

const cJSON *ab_loop_overflow(const ab_facts *facts, int *index) {
    const cJSON *entry, *first = NULL;
    int place = -1;
    cJSON_ArrayForEach(entry, ab_json_at(facts->document, "probe.overflowed")) {
        place++;
        if (first && !(ab_json_number(entry, "first_step", 0) < ab_json_number(first, "first_step", 0)))
            continue;
        first = entry;
        *index = place;
    }
    return first;
}
