/* Whether an fp32 reference learned anything: without that, "as good as O0" says nothing. */
#ifndef AB_REPORTS_RECORD_LEARNED_H
#define AB_REPORTS_RECORD_LEARNED_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

/* Whether a cell whose final loss is `loss_final` learned: it is better than the best constant prediction,
 * where that is known, or tells targets apart (test_loss_shuffled); else below its first loss, of a run that
 * did not go on from a checkpoint. If not, `reason` gets a sentence with the numbers. */
bool ab_learned(const cJSON *document, const cJSON *cell, double loss_final, char *reason, size_t size);

AB_END_DECLS

#endif
