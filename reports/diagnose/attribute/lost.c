#include "reports/diagnose/attribute/lost.h"

#include "kernels/core/text.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/text.h"

bool ab_is_stated(const ab_case *c, const char *name) { return ab_stated_of(&c->facts, name).known; }

bool ab_judge_lost(const ab_case *c, const char *name, double least, const char *what, ab_verdict *verdict) {
    const ab_stated lost = ab_stated_of(&c->facts, name);
    char share[AB_TEXT_NUMBER];
    if (!lost.known || !(lost.largest >= least)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, lost.place);
    ab_verdict_add_evidence(verdict, "%s: %s %% of %s", ab_text_brief(lost.place, 80),
                            ab_text_percent(share, lost.largest), what);
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", lost.index);
    return true;
}
