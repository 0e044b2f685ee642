/* Looks machines up. */
#include "reports/record/machines.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <stdlib.h>
#include <string.h>

bool ab_machines_create(const cJSON *document, ab_machines *machines) {
    const cJSON *machine, *list = ab_json_at(document, "machines");
    *machines = (ab_machines){NULL, 0};
    machines->machine = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *machines->machine);
    if (!machines->machine) return false;
    cJSON_ArrayForEach(machine, list) machines->machine[machines->count++] = machine;
    return true;
}

void ab_machines_clear(ab_machines *machines) {
    free(machines->machine);
    *machines = (ab_machines){NULL, 0};
}

const cJSON *ab_machines_of(const ab_machines *machines, const cJSON *cell) {
    const double index = ab_json_number(cell, "machine", -1);
    return index >= 0 && index < machines->count ? machines->machine[(int)index] : NULL;
}

static const char *class_of(const cJSON *machine) { return ab_json_text(machine, "class", ""); }

bool ab_machines_alike(const ab_machines *machines, const cJSON *a, const cJSON *b) {
    if (machines->count == 0) return true;
    return strcmp(class_of(ab_machines_of(machines, a)), class_of(ab_machines_of(machines, b))) == 0;
}

int ab_machines_of_class(const ab_machines *machines, int index) {
    int count = 0;
    for (int k = 0; k < machines->count; k++) {
        if (strcmp(class_of(machines->machine[k]), class_of(machines->machine[index])) != 0) continue;
        if (k < index) return 0;
        count++;
    }
    return count;
}

int ab_machines_classes(const ab_machines *machines) {
    int classes = 0;
    for (int i = 0; i < machines->count; i++) classes += ab_machines_of_class(machines, i) > 0;
    return classes;
}

const char *ab_machine_text(const cJSON *machine, char *text, size_t size) {
    char name[60], cpu[80], isa[24];
    const char *model = ab_json_text(machine, "cpu_model", NULL);
    const double threads = ab_json_number(machine, "threads", 0);
    ab_text_clean(name, sizeof name, ab_json_text(machine, "name", "?"));
    ab_text_clean(cpu, sizeof cpu, model ? model : "unknown CPU");
    ab_text_clean(isa, sizeof isa, ab_json_text(machine, "isa", "?"));
    ab_text_show(text, size, "%s (%s, %s, %.0f thread%s)", name, cpu, isa, threads, threads == 1 ? "" : "s");
    return text;
}
