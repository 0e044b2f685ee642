/* Converts traces to the structs that reports print. */
#include "bench/amp/trace/scale_trace.h"

_Static_assert((int)AB_TRACE_VALUES >= (int)AB_SCALER_KEYS, "room for the keys");
_Static_assert((int)AB_TRACE_VALUES >= (int)AB_SCALER_STATES + 1, "room for the scale and the state");

ab_trace_config ab_scaler_trace_config(const ab_scaler_config *config) {
    const ab_scaler_kind *kind = config->kind;
    ab_trace_config traced = {.dialect = kind->name, .keys = kind->keys};
    for (int i = 0; i < kind->keys; i++)
        traced.key[i] =
            (ab_trace_value){kind->key[i].name, config->value[i], kind->key[i].type == AB_SCALER_BOOL};
    return traced;
}

ab_trace_error ab_scaler_trace_error(const ab_scaler_fault *fault, int64_t step) {
    if (!fault) return (ab_trace_error){.name = NULL};
    return (ab_trace_error){fault->name, fault->text, fault->raises, step};
}

ab_trace_column ab_scaler_trace_column(const ab_scaler_trace *trace, char heading[AB_SCALER_TEXT]) {
    const ab_scaler *scaler = &trace->scaler;
    ab_trace_column column = {
        .config = ab_scaler_trace_config(&scaler->config),
        .heading = ab_scaler_text(&scaler->config, heading),
        .run = trace->run,
        .runs = trace->runs,
        .unlisted = trace->unlisted,
        .steps = trace->steps,
        .skipped = trace->skipped,
        .overflows = trace->overflows,
        .warm_up = trace->warm_up,
        .sum_scale = trace->sum_scale,
        .sum_log2 = trace->sum_log2,
        .states = ab_scaler_state_count(scaler->kind),
        .error = ab_scaler_trace_error(trace->fault, trace->fault_step),
    };
    for (int i = 0; i < column.states; i++)
        column.state[i] =
            (ab_trace_value){ab_scaler_state_name(scaler->kind, i), ab_scaler_state(scaler, i), false};
    return column;
}
