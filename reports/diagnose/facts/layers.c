/* Reading of probes.activations, whose order is that in which layers ran, and of weight gradients. */
#include "reports/diagnose/facts/layers.h"

#include "reports/record/json.h"

#include <math.h>
#include <string.h>

static double sum_of(const cJSON *list) {
    const cJSON *item;
    double sum = 0;
    cJSON_ArrayForEach(item, list) {
        if (cJSON_IsNumber(item)) sum += item->valuedouble;
    }
    return sum;
}

static bool is_weight(const cJSON *tensor) {
    return strcmp(ab_json_text(tensor, "kind", ""), "weight_gradient") == 0 &&
           strstr(ab_json_text(tensor, "name", ""), "weight.grad") && ab_json_number(tensor, "count", 0) > 0;
}

/* An embedding's rows that no sample reads have no gradient: zeros do not count, unless all are. */
static double rms_of_nonzero(const cJSON *tensor) {
    const double nonzero = ab_json_number(tensor, "nonzero", 0);
    return nonzero > 0 ? sqrt(sum_of(ab_json_at(tensor, "steps.energy")) / nonzero) : 0;
}

/* When a layer ran: its place among the outputs; their number: it was not shown. */
static int turn_of(const cJSON *outputs, const char *layer) {
    const cJSON *output;
    int turn = 0;
    cJSON_ArrayForEach(output, outputs) {
        if (strcmp(ab_json_text(output, "layer", ""), layer) == 0) break;
        turn++;
    }
    return turn;
}

ab_front ab_layers_front(const cJSON *cell) {
    ab_front front = {.layer = "", .place = -1};
    const cJSON *tensor, *outputs = ab_json_at(cell, "probes.activations");
    int place = -1, first = cJSON_GetArraySize(outputs);
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        place++;
        if (!is_weight(tensor)) continue;
        const char *layer = ab_json_text(tensor, "layer", "");
        const int turn = turn_of(outputs, layer);
        front.most = fmax(front.most, rms_of_nonzero(tensor));
        front.layers++;
        if (turn >= first) continue;
        first = turn;
        front.gradient = tensor;
        front.layer = layer;
        front.place = place;
        front.own = rms_of_nonzero(tensor);
    }
    return front;
}

/* All values of a gradient are 0 at two probed steps or more. */
static bool is_nothing(const cJSON *tensor) {
    const double count = ab_json_number(tensor, "count", 0);
    return count > 0 && ab_json_number(tensor, "zero", 0) == count &&
           ab_json_number(tensor, "steps.count", 0) >= 2;
}

bool ab_layers_front_is_nothing(const cJSON *cell) {
    const ab_front front = ab_layers_front(cell);
    return front.layers > 1 && is_nothing(front.gradient);
}

static bool has_bias_gradient(const cJSON *cell, const char *layer) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        if (strcmp(ab_json_text(tensor, "kind", ""), "weight_gradient") == 0 && !is_weight(tensor) &&
            strstr(ab_json_text(tensor, "name", ""), "bias.grad") &&
            strcmp(ab_json_text(tensor, "layer", ""), layer) == 0)
            return ab_json_number(tensor, "nonzero", 0) > 0;
    }
    return false;
}

/* The weight gradient of the layer that ran last before this turn; NULL: none did. */
static const cJSON *weight_before(const cJSON *cell, int turn) {
    const cJSON *tensor, *found = NULL, *outputs = ab_json_at(cell, "probes.activations");
    int last = -1;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        const int here = is_weight(tensor) ? turn_of(outputs, ab_json_text(tensor, "layer", "")) : turn;
        if (here >= turn || here <= last) continue;
        last = here;
        found = tensor;
    }
    return found;
}

ab_silence ab_layers_silence(const cJSON *cell) {
    const cJSON *tensor, *outputs = ab_json_at(cell, "probes.activations");
    int place = -1;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        const char *behind = ab_json_text(tensor, "layer", "");
        const int turn = turn_of(outputs, behind);
        place++;
        if (!is_weight(tensor) || !is_nothing(tensor) || turn >= cJSON_GetArraySize(outputs) ||
            !has_bias_gradient(cell, behind))
            continue;
        const cJSON *other = weight_before(cell, turn);
        const char *before = ab_json_text(other, "layer", "");
        const cJSON *output = cJSON_GetArrayItem(outputs, turn_of(outputs, before));
        if (other && is_nothing(other) && ab_json_number(output, "nonzero", 0) > 0)
            return (ab_silence){before, behind, place, ab_json_number(tensor, "count", 0)};
    }
    return (ab_silence){.place = -1};
}

static double first_rms(const cJSON *output) {
    const cJSON *energy = cJSON_GetArrayItem(ab_json_at(output, "steps.energy"), 0),
                *count = cJSON_GetArrayItem(ab_json_at(output, "steps.nonzero"), 0);
    if (!cJSON_IsNumber(energy) || !cJSON_IsNumber(count) || count->valuedouble <= 0) return (double)NAN;
    return sqrt(energy->valuedouble / count->valuedouble);
}

double ab_layers_growth(const cJSON *cell, int *place) {
    const cJSON *output;
    double first = (double)NAN, most = (double)NAN;
    int i = -1, outputs = 0;
    cJSON_ArrayForEach(output, ab_json_at(cell, "probes.activations")) {
        const double size = first_rms(output);
        i++;
        if (!(size > 0)) continue;
        if (outputs++ == 0) first = size;
        if (!(most >= size)) {
            most = size;
            *place = i;
        }
    }
    return outputs > 1 ? most / first : (double)NAN;
}

/* The gradient of a layer's output in the first step that shows it (root mean square); NAN: not shown. */
static double first_gradient(const cJSON *cell, const char *layer) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        if (strcmp(ab_json_text(tensor, "kind", ""), "activation_gradient") == 0 &&
            strcmp(ab_json_text(tensor, "layer", ""), layer) == 0)
            return first_rms(tensor);
    }
    return (double)NAN;
}

ab_back ab_layers_back(const cJSON *cell) {
    ab_back back = {.growth = (double)NAN, .early = ""};
    const cJSON *output;
    double first = (double)NAN, before = (double)NAN, last = (double)NAN;
    cJSON_ArrayForEach(output, ab_json_at(cell, "probes.activations")) {
        const char *layer = ab_json_text(output, "layer", "");
        const double size = first_gradient(cell, layer);
        if (!(size > 0)) continue;
        if (!back.early[0]) {
            back.early = layer;
            first = size;
            continue;
        }
        before = last;
        last = size;
    }
    if (before > 0) back.growth = first / fmax(before, last);
    return back;
}
