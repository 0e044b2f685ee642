/* Settings of a record that several readers combine in the same way. */
#include "reports/record/settings.h"

#include "reports/record/json.h"

double ab_result_batches_per_step(const cJSON *document) {
    return ab_json_number(document, "config.gradient_accumulation_steps", 1) *
           ab_json_number(document, "config.ranks", 1);
}
