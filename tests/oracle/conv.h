/* Convolution and its gradients from the definition, in double. All three are one trilinear form: the sum
 * over (image, output pixel, output channel, tap, input channel) of in * weight * dout, differentiated by one
 * of its factors. */
#ifndef AB_TESTS_ORACLE_CONV_H
#define AB_TESTS_ORACLE_CONV_H

#include "oracle/doubles.h"

typedef struct oracle_conv {
    int64_t n, h, w, c, oc, kh, kw, sh, sw, ph, pw, dh, dw, groups, oh, ow;
} oracle_conv;

/* out, din and dweight must be zeroed (out may hold the bias). */
static inline void oracle_conv_all(const oracle_conv *s, const double *in, const double *weight,
                                   const double *dout, oracle_sums out, oracle_sums din,
                                   oracle_sums dweight) {
    int64_t per_in = s->c / s->groups, per_out = s->oc / s->groups;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oy = 0; oy < s->oh; oy++)
            for (int64_t ox = 0; ox < s->ow; ox++)
                for (int64_t o = 0; o < s->oc; o++)
                    for (int64_t ky = 0; ky < s->kh; ky++)
                        for (int64_t kx = 0; kx < s->kw; kx++)
                            for (int64_t i = 0; i < per_in; i++) {
                                int64_t y = oy * s->sh + ky * s->dh - s->ph,
                                        x = ox * s->sw + kx * s->dw - s->pw;
                                if (y < 0 || y >= s->h || x < 0 || x >= s->w) continue;
                                int64_t at_in = ((n * s->h + y) * s->w + x) * s->c + o / per_out * per_in + i;
                                int64_t at_out = ((n * s->oh + oy) * s->ow + ox) * s->oc + o;
                                int64_t at_w = ((o * per_in + i) * s->kh + ky) * s->kw + kx;
                                oracle_add(out, at_out, in[at_in] * weight[at_w]);
                                oracle_add(din, at_in, dout[at_out] * weight[at_w]);
                                oracle_add(dweight, at_w, dout[at_out] * in[at_in]);
                            }
}

#endif
