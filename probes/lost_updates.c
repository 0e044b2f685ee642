/* The ledger of lost updates: which changes of a weight were gone once the weight was stored, and what caused them.
 *
 * An update is lost if it is not zero and the stored weight is, bit for bit, the one from before. A cause (gradient step,
 * weight decay, momentum, eps) is lost if the weight plus that part alone, added in fp32 and stored, is the weight from
 * before: decay far below half a spacing reads 100 % even where a large gradient step carries it along. Energy is the
 * sum of squares. Both are counted in every update of a probed step, in double; skipped steps have none.
 *
 * Forecast: an update that moves a weight by r half spacings survives while r >= 1 and shrinks with the learning rate, so
 * the learning rate at which 90 % of a parameter's updates are lost is lr / (90 % point of r). It is taken from the last
 * probed step: gradients change. */
#include "kernels/convert.h"
#include "probes/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOTAL = AB_TERM_COUNT, CAUSES, LANES = 8 };

static const char *const cause_names[CAUSES] = {"gradient", "weight_decay", "momentum", "eps", "update"};
static const double stopped_share = 0.9;

/* Of one cause. */
typedef struct account {
    int64_t nonzero, lost;
    double energy, lost_energy;
} account;

/* Of one block of a parameter in the step under way: sums in double are folded in the order of the blocks, whichever lane
 * made them. */
typedef struct block_sums {
    account cause[CAUSES];
    unsigned causes; /* bit per cause that the optimizer has */
    double moved;    /* sum of what storing really changed, times what should have been changed */
} block_sums;

/* How many half spacings of the weight an update is, by eighths of an octave. */
enum { RATIO_BITS = 3, RATIO_OCTAVES = 128, RATIOS = RATIO_OCTAVES << RATIO_BITS, RATIO_SHIFT = 23 - RATIO_BITS };
static const uint32_t ratio_base = (uint32_t)(127 - RATIO_OCTAVES / 2) << RATIO_BITS;

typedef struct ledger {
    account cause[CAUSES];
    unsigned causes;
    double moved;
    int64_t nonzero[AB_COLUMNS], lost[AB_COLUMNS];
    int64_t stopped_since; /* step, or -1 */
    int64_t first_block;   /* into the state's blocks */
    uint32_t ratio[RATIOS], recent[RATIOS]; /* of the step under way (all lanes); of the last step with updates */
} ledger;

typedef struct lost_updates {
    ab_probe_setup setup;
    ledger *param;       /* [params] */
    block_sums *block;   /* all parameters' blocks */
    uint32_t *lane_ratio; /* [threads][params][RATIOS] */
    ab_columns columns;
    int64_t steps;
} lost_updates;

static void destroy(void *state) {
    lost_updates *l = state;
    if (!l) return;
    free(l->param);
    free(l->block);
    free(l->lane_ratio);
    free(l);
}
