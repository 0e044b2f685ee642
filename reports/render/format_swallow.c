/* Every number is found by rounding, not from the rule that is printed beside it. */
#include "reports/render/format_swallow.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/format/convert.h"

#include <math.h>

static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};

static double stored(const ab_format *format, double x) { return ab_format_round(format, &nearest, x); }

/* By halving the distance between an update that is lost and one that is not, until they are neighbours. */
double ab_format_swallowed(const ab_format *format, double w) {
    double lost = 0, kept = w;
    while (nextafter(lost, kept) < kept) {
        const double middle = lost > 0 && kept / lost > 2 ? sqrt(lost * kept) : lost + (kept - lost) / 2;
        const double update = middle > lost && middle < kept ? middle : nextafter(lost, kept);
        if (stored(format, w + update) == w)
            lost = update;
        else
            kept = update;
    }
    return lost;
}

static void print_row(FILE *out, const ab_format *format, double wanted) {
    const double w = stored(format, wanted);
    if (!(w >= ab_format_min_normal(format)) || !(2 * w <= ab_format_max(format))) return;
    const double swallowed = ab_format_swallowed(format, w);
    double next = swallowed;
    while (stored(format, w + next) == w) next *= 1.5;
    ab_print(out, "  %-12.7g %-12.7g %-14.7g 2^%-10.4g %.7g + %.7g = %.7g\n", w, stored(format, w + next) - w,
             swallowed, log2(w / swallowed), w, swallowed, stored(format, w + swallowed));
}

void ab_format_swallow_print(FILE *out, const ab_format *format) {
    static const double weights[] = {1, 1.25, 1.5, 1.999, 0.1, 0.01, 100};
    const int p = format->precision;
    ab_print(
        out,
        "%s keeps %d significant bits. Between 2^e and 2^(e+1) its values are 2^(e-%d) apart, so adding an "
        "update dw\nto a weight w there and storing the sum gives w again if |dw| is less than half of that, "
        "2^(e-%d), or exactly half\nand the last bit of w is 0.\n\n",
        format->name, p, p - 1, p);
    ab_print(
        out,
        "  |w|/|dw| below 2^%d: never swallowed\n  2^%d to 2^%d: swallowed if w is in the lower part of its "
        "octave\n  from 2^%d on: always swallowed\n\n",
        p, p, p + 1, p + 1);
    ab_print(out, "Subnormal weights, below 2^%d, have the spacing of weights at 2^%d and swallow more.\n\n",
             format->emin, format->emin);
    ab_print(out, "  %-12s %-12s %-14s %-12s %s\n", "weight w", "next value", "largest dw", "w/dw", "stored");
    ab_print(out, "  %-12s %-12s %-14s\n", "", "is at w +", "that is lost");
    for (size_t i = 0; i < AB_COUNT_OF(weights); i++) print_row(out, format, weights[i]);
    ab_print(out,
             "\nA learning rate that makes all updates that small stops training. fp32 masters (--set "
             "master_weights=True) take them:\nthere the line is 2^24. A run counts them: `lost %%` in the "
             "table, the plot `updates`, probes.lost_updates.\n");
}
