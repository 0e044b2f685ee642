/* Layers with a format of their own, as users write them: "conv1=fp32,block.*.attn=half". (MindSpore's Cell.to_float.) */
#ifndef AB_BENCH_AMP_LAYER_FORMATS_H
#define AB_BENCH_AMP_LAYER_FORMATS_H

#include "bench/nets/net.h"
#include "kernels/format.h"

AB_BEGIN_DECLS

/* format[net->ops] gets each op's own format, or NULL. A pattern is an op's name with * and ?, or the part of it before a dot (a
 * block and all that is in it); later items override earlier ones. Formats: fp32, half, or the name of `half`. AB_USAGE: a
 * pattern that matches no layer (names the nearest), another format, or no format at all. */
AB_MUST_CHECK ab_status ab_layer_formats(const char *text, const ab_net *net, const ab_format *half,
                                         const ab_format **format);

AB_END_DECLS

#endif
