/* Statements folded by name and place. */
#include "probes/lib/named_facts.h"

#include "kernels/core/text.h"

#include <math.h>
#include <string.h>

ab_status ab_lib_fact_check(const char *name, const char *place, int64_t step) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t length = name ? strlen(name) : 0;
    if (length == 0 || length >= AB_LIB_FACT_NAME || strspn(name, letters) != length)
        return ab_fail(AB_CONFIG, "name: expected 1 to %d small letters, digits or _", AB_LIB_FACT_NAME - 1);
    if (place && strlen(place) >= AB_LIB_FACT_PLACE)
        return ab_fail(AB_CONFIG, "place: expected at most %d bytes", AB_LIB_FACT_PLACE - 1);
    if (step < 0) return ab_fail(AB_CONFIG, "step: expected a number from 0 on, found %lld", (long long)step);
    return AB_OK;
}

static ab_lib_fact *find(ampprobe *p, const char *name, const char *place) {
    for (int32_t i = 0; i < p->facts->count; i++) {
        ab_lib_fact *fact = &p->facts->fact[i];
        if (strcmp(fact->name, name) == 0 && strcmp(fact->place, place) == 0) return fact;
    }
    return NULL;
}

void ab_lib_fact_add(ampprobe *p, const char *name, const char *place, int64_t step, double value) {
    ab_lib_fact *fact = find(p, name, place ? place : "");
    if (!fact && p->facts->count == AB_LIB_FACTS) {
        p->facts->left_out++;
        return;
    }
    if (!fact) {
        fact = &p->facts->fact[p->facts->count++];
        *fact = (ab_lib_fact){.first_step = step, .first = value, .least = value, .largest = value};
        ab_text_exact(fact->name, sizeof fact->name, "%s", name);
        ab_text_exact(fact->place, sizeof fact->place, "%s", place ? place : "");
    }
    fact->times++;
    fact->last_step = step;
    fact->last = value;
    fact->least = fmin(fact->least, value);
    fact->largest = fmax(fact->largest, value);
}

void ab_lib_facts_print(const ampprobe *p, ab_probe_sink *s) {
    s->begin_array(s, "facts");
    for (int32_t i = 0; i < p->facts->count; i++) {
        const ab_lib_fact *fact = &p->facts->fact[i];
        s->begin_object(s, NULL);
        s->text(s, "name", fact->name);
        s->text(s, "place", fact->place);
        s->integer(s, "times", fact->times);
        s->integer(s, "first_step", fact->first_step);
        s->integer(s, "last_step", fact->last_step);
        s->number(s, "first", fact->first);
        s->number(s, "last", fact->last);
        s->number(s, "least", fact->least);
        s->number(s, "largest", fact->largest);
        s->end(s);
    }
    s->end(s);
    s->integer(s, "facts_left_out", p->facts->left_out);
}
