/* Which settings of a run (keys of a result's `config`) two runs must share to be comparable. */
#ifndef AB_REPORTS_RECORD_SETTINGS_H
#define AB_REPORTS_RECORD_SETTINGS_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* All but these: lists that make cells (cells are matched one by one), how long was measured, and the
 * scaler's constants, whose effect is judged in the losses and scales. */
bool ab_setting_counts(const char *key);

/* A number (FNV-1a) of all settings that count, in any order. What is null, false or empty is left out, so
 * that a setting that a later version adds and nobody uses changes nothing. */
uint64_t ab_settings_digest(const cJSON *config);

AB_END_DECLS

#endif
