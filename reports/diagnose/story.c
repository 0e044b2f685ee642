/* Compares what would be told; evidence, which differs in its numbers, is not part of a story. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "reports/diagnose/story.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/diagnose/explain.h"
#include "reports/record/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ab_stories_free(ab_stories *stories) {
    cJSON_Delete(stories->told);
    stories->told = NULL;
}

static ab_status write_story(const ab_diagnosis *d, char **story) {
    char missing[AB_VERDICT_TEXT];
    size_t size = 0;
    *story = NULL;
    FILE *out = open_memstream(story, &size);
    if (!out) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    for (int i = 0; i < d->verdicts; i++) {
        const ab_verdict *v = &d->verdict[i];
        ab_print(out, "%s|%s|%s|%s\n", v->rule->id, ab_rank_name(v->rank), ab_proof_name(v->proof),
                 v->remedy.text);
    }
    if (d->verdicts == 0) ab_missing_evidence(&d->found, missing, sizeof missing);
    if (d->verdicts == 0) ab_print(out, "%s\n", missing);
    ab_explain_decision(&d->decision, out);
    if (fclose(out) == 0) return AB_OK;
    free(*story);
    *story = NULL;
    return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
}

/* The layer and the margin of each of its skipped steps are said. */
static bool has_skips(const ab_diagnosis *d) {
    return d->found.facts.skip.dynamic && d->found.facts.skip.skipped > 0;
}

/* The id of the cell that told the story first; NULL: none has. */
static const char *teller(const cJSON *told, const char *story) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, told) {
        if (strcmp(cell->string, story) == 0) return cell->valuestring;
    }
    return NULL;
}

ab_status ab_stories_find(ab_stories *stories, const ab_diagnosis *d, const char **first) {
    char *story;
    *first = NULL;
    if (has_skips(d)) return AB_OK;
    AB_TRY(write_story(d, &story));
    if (!stories->told) stories->told = cJSON_CreateObject();
    *first = teller(stories->told, story);
    const bool kept =
        *first || cJSON_AddStringToObject(stories->told, story, ab_json_text(d->found.facts.cell, "id", "?"));
    free(story);
    return kept ? AB_OK : ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
}

const char *ab_story_causes(const ab_diagnosis *d, char *text) {
    ab_text_show(text, AB_VERDICT_TEXT, "%s", d->verdicts > 0 ? "" : ab_diagnosis_first(d));
    for (int i = 0; i < d->verdicts; i++) {
        const ab_verdict *v = &d->verdict[i];
        ab_text_append(text, AB_VERDICT_TEXT, "%s%s%s%s", i > 0 ? ", " : "", v->rule->id,
                       v->layer[0] ? " in " : "", v->layer);
    }
    return text;
}
