/* Changes of the rate, the schedule, the number of steps and of planted mistakes. */
#include "reports/diagnose/remedy/remedy.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <math.h>
#include <string.h>

bool ab_remedy_rate(const ab_facts *facts, double rate, ab_remedy *remedy) {
    (void)facts;
    if (!(rate > 0 && isfinite(rate))) return false;
    ab_remedy_option(remedy, NULL, "--lr", "%.2g", rate);
    return true;
}

bool ab_remedy_constant_rate(const ab_facts *facts, ab_remedy *remedy) {
    if (strncmp(ab_json_text(facts->document, "config.schedule", ""), "constant", 8) == 0) return false;
    ab_remedy_option(remedy, NULL, "--schedule", "constant");
    return true;
}

/* The other mistakes of the run stay. */
bool ab_remedy_no_fault(const ab_facts *facts, const char *fault, ab_remedy *remedy) {
    char others[AB_REMEDY_TEXT] = "";
    const cJSON *item;
    bool found = false;
    cJSON_ArrayForEach(item, ab_json_at(facts->document, "config.faults")) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        if (strcmp(name, fault) == 0)
            found = true;
        else
            ab_text_append(others, sizeof others, "%s%s", others[0] ? "," : "", name);
    }
    if (found) ab_remedy_option(remedy, "a planted fault", "--fault", "%s", others[0] ? others : "none");
    return found;
}

/* --steps counts those before a resumed run too, and a run with --epochs refuses it. */
bool ab_remedy_times_steps(const ab_facts *facts, double times, ab_remedy *remedy) {
    const double epochs = ab_json_number(facts->document, "config.epochs", 0),
                 before = ab_json_number(facts->document, "config.first_step", 0);
    const int steps = facts->baseline_loss.steps > 0 ? facts->baseline_loss.steps : 1;
    if (!(times > 1)) return false;
    if (epochs > 0)
        ab_remedy_option(remedy, NULL, "--epochs", "%.0f", ceil(epochs * times));
    else
        ab_remedy_option(remedy, NULL, "--steps", "%.0f", before + ceil(steps * times));
    return true;
}

bool ab_remedy_more_steps(const ab_facts *facts, ab_remedy *remedy) {
    const int steps = facts->baseline_loss.steps;
    if (remedy->options == 0 || steps <= 0) return false;
    return ab_remedy_times_steps(facts, fmin(2, facts->limits->long_enough / steps), remedy);
}
