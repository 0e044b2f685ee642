/* Changes to a run that remove a cause. */
#include "reports/diagnose/remedy/remedy.h"

#include "kernels/core/text.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <stdarg.h>
#include <string.h>

void ab_remedy_option(ab_remedy *remedy, const char *name, const char *format, ...) {
    if (remedy->options + 2 > AB_REMEDY_OPTIONS) return;
    char(*option)[AB_REMEDY_TEXT] = &remedy->option[remedy->options];
    ab_text_exact(option[0], AB_REMEDY_TEXT, "%s", name);
    va_list args;
    va_start(args, format);
    if (ab_text_fits_args(option[1], AB_REMEDY_TEXT, format, args)) remedy->options += 2;
    va_end(args);
}

void ab_remedy_more_steps(const ab_facts *facts, ab_remedy *remedy) {
    const int wanted = (int)facts->limits->long_enough;
    const int steps = facts->baseline_loss.steps;
    if (steps < wanted) ab_remedy_option(remedy, "--steps", "%d", 2 * steps < wanted ? 2 * steps : wanted);
}
