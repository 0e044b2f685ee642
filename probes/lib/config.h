/* The config of a probe: one JSON value a key, checked by type, kept as text, and parsed where the library
 * itself needs it. Keys and their types: config.def; what they mean: include/ampprobe.h. */
#ifndef AB_PROBES_LIB_CONFIG_H
#define AB_PROBES_LIB_CONFIG_H

#include "kernels/format/format.h"
#include "probes/lib/json_read.h"

AB_BEGIN_DECLS

typedef enum ab_lib_key {
#define AB_LIB_KEY(name, type) AB_LIB_KEY_##name,
#include "probes/lib/config.def"
#undef AB_LIB_KEY
    AB_LIB_KEYS
} ab_lib_key;

enum { AB_LIB_OPTIMIZERS = 16, AB_LIB_OPTIMIZER_NAME = 24 };

/* Constants of a group's optimizer; NAN: not known. */
typedef struct ab_lib_optimizer {
    char name[AB_LIB_OPTIMIZER_NAME]; /* "" : not known */
    double lr, momentum, dampening, beta1, beta2, eps, weight_decay;
    double since; /* step of the group at which this optimizer came */
    bool nesterov, fused;
} ab_lib_optimizer;

typedef struct ab_lib_about {
    char *key, *value; /* owned; JSON text, the key without quotes */
} ab_lib_about;

typedef struct ab_lib_config {
    char *value[AB_LIB_KEYS]; /* owned JSON text; NULL: not known */
    double budget;
    int64_t every;
    const ab_format *half;
    int64_t steps; /* 0: not known */
    ab_lib_optimizer optimizer[AB_LIB_OPTIMIZERS];
    ab_lib_about *about;
    int abouts;
} ab_lib_config;

/* Defaults. */
void ab_lib_config_init(ab_lib_config *config);

/* Sets the keys of a JSON object. AB_CONFIG names the key, what was expected and found. On failure some keys
 * may have been set. */
AB_MUST_CHECK ab_status ab_lib_config_read(ab_lib_config *config, const char *text);

/* Sets one key; `later`: after opening, when some keys cannot be changed any more. */
AB_MUST_CHECK ab_status ab_lib_config_set(ab_lib_config *config, const char *key, const char *text,
                                          bool later);

/* The name of a key. */
const char *ab_lib_key_name(ab_lib_key key);

/* The text of a string key, owned by the caller (free); NULL if it is not known or memory is out. */
AB_MUST_CHECK char *ab_lib_config_text(const ab_lib_config *config, ab_lib_key key);

/* Frees what the config holds. */
void ab_lib_config_free(ab_lib_config *config);

AB_END_DECLS

#endif
