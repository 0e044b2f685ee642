/* Layers of a training loop in the order in which they first ran, from the outputs that a probe showed; the
 * order in which a model lists its parameters says nothing. */
#ifndef AB_REPORTS_DIAGNOSE_FACTS_LAYERS_H
#define AB_REPORTS_DIAGNOSE_FACTS_LAYERS_H

#include "reports/diagnose/facts/facts.h"

AB_BEGIN_DECLS

/* The weight gradient of the layer that ran first, beside those of all layers. */
typedef struct ab_front {
    const cJSON *gradient; /* in probes.tensors; NULL: no layer with a weight was shown */
    const char *layer;     /* borrowed */
    int place, layers;     /* of it in probes.tensors; weight gradients */
    double own, most;      /* root mean squares of values that are not 0: its own, the largest of all */
} ab_front;
ab_front ab_layers_front(const cJSON *cell);

/* There are several layers, and all values of that gradient are 0 at all probed steps, two or more. */
bool ab_layers_front_is_nothing(const cJSON *cell);

/* A layer whose weight gradient is 0 at all probed steps, two or more, while that of its bias is not: a
 * gradient arrives, and what the layer reads is 0 for every sample. And the layer with a weight that ran
 * before it, whose outputs are not all 0 and whose weight gradient is: what is between the two makes every
 * output 0 and passes no gradient. Inputs of 0 do neither, nor does a layer of another branch. */
typedef struct ab_silence {
    const char *before, *behind; /* the two layers; borrowed; NULL: there are none such */
    int place;                   /* of the weight gradient of `behind` in probes.tensors */
    double count;                /* its values */
} ab_silence;
ab_silence ab_layers_silence(const cJSON *cell);

/* The largest output of any layer over that of the layer that ran first (root mean squares of values that are
 * not 0), in the first steps that show layers. *place: in probes.activations. NAN: fewer than two were shown.
 */
double ab_layers_growth(const cJSON *cell, int *place);

/* By how much gradients grow on their way back through the layers: that of the output of the layer that runs
 * first over the larger one of the last two (root mean squares of values that are not 0), in the first steps
 * that show layers. One large layer alone makes none. NAN: fewer than three gradients were shown. */
typedef struct ab_back {
    double growth;
    const char *early; /* the layer that runs first; borrowed */
} ab_back;
ab_back ab_layers_back(const cJSON *cell);

AB_END_DECLS

#endif
