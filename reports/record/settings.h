/* Settings of a run (keys of a result's `config`) that two runs must share to be comparable. */
#ifndef AB_REPORTS_RECORD_SETTINGS_H
#define AB_REPORTS_RECORD_SETTINGS_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* Returns true for all keys except: lists that generate cells (cells are matched one by one), the
 * measurement duration, and the scaler's constants, whose effect is judged in the losses and scales. */
bool ab_setting_counts(const char *key);

/* FNV-1a digest of all settings for which ab_setting_counts is true; independent of their order. Null,
 * false and empty values are left out, so that a setting added by a later version changes the digest only
 * where it is used. */
uint64_t ab_settings_digest(const cJSON *config);

AB_END_DECLS

#endif
