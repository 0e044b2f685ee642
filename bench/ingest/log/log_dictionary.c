/* A dictionary on a line, as Python prints it or as JSON: Hugging Face's Trainer, fairseq, JSON Lines of any
 * program. */
#include "bench/ingest/log/format.h"

static bool take(const ab_log *log, const ab_log_line *line, ab_log_point *point) {
    const unsigned wanted = 1u << AB_LOG_loss | 1u << AB_LOG_scale | 1u << AB_LOG_grad_norm |
                            1u << AB_LOG_overflow | 1u << AB_LOG_grad_max;
    const char *brace = ab_log_find(line->text, line->end, "{");
    for (; brace; brace = ab_log_find(brace + 1, line->end, "{")) {
        point->has = 0;
        if (ab_log_dictionary(log, line, brace, point, NULL) > 0 && point->has & wanted) return true;
    }
    return false;
}

const ab_log_format ab_log_format_dictionary = {
    .name = "dictionary",
    .example = "{'loss': 0.1474, 'grad_norm': 1.2, 'learning_rate': 0.0001, 'epoch': 0.04}",
    .origin = "Hugging Face transformers, trainer_callback.py; JSON Lines",
    .mark = "{",
    .take = take,
};
