/* Settings of a record that several readers combine in the same way. */
#ifndef AB_REPORTS_RECORD_SETTINGS_H
#define AB_REPORTS_RECORD_SETTINGS_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Batches whose gradients are in one step: accumulated ones times simulated ranks. */
double ab_result_batches_per_step(const cJSON *document);

AB_END_DECLS

#endif
