/* Images of tensors as stored; see image_pieces.h. */
#include "kernels/ops/product/image_pieces.h"

#include "kernels/ops/blocks.h"

ab_image_pieces ab_image_pieces_of(const ab_pass_spec *spec, size_t own_bytes) {
    const ab_window *w = &spec->conv.window;
    const int64_t in = w->in[0] * w->in[1] * w->channels,
                  out = w->out[0] * w->out[1] * spec->conv.out_channels;
    const bool weights = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    ab_image_pieces pieces = {.own_bytes = own_bytes, .thread_bytes = own_bytes};
    pieces.count[AB_PIECE_SRC] = spec->kind == AB_PASS_BACKWARD_DATA ? out : in;
    pieces.count[AB_PIECE_DOUT] = weights ? out : 0;
    pieces.count[AB_PIECE_DST] = weights ? 0 : in + out - pieces.count[AB_PIECE_SRC];
    for (int i = 0; spec->stored && i < AB_PIECES; i++)
        pieces.thread_bytes += ab_floats_bytes(pieces.count[i]);
    return pieces;
}

float *ab_piece_memory(const ab_image_pieces *pieces, const ab_pass_args *args) {
    return (float *)args->scratch + (size_t)ab_parallel_thread() * (pieces->thread_bytes / sizeof(float));
}

/* The calling thread's buffer for an image. */
static float *buffer_of(const ab_image_pieces *pieces, const ab_pass_args *args, int piece) {
    size_t at = pieces->own_bytes;
    for (int i = 0; i < piece; i++) at += ab_floats_bytes(pieces->count[i]);
    return ab_piece_memory(pieces, args) + at / sizeof(float);
}

const float *ab_piece_read(const ab_image_pieces *pieces, const ab_pass_args *args, int piece,
                           int64_t image) {
    const int64_t n = pieces->count[piece];
    const bool src = piece == AB_PIECE_SRC;
    if (!args->stored) return (const float *)(src ? args->src : args->dout) + image * n;
    const ab_tensor *tensor = src ? args->stored->src : args->stored->dout;
    return ab_read(tensor, image * n, n, buffer_of(pieces, args, piece));
}

void ab_fetch_part(const void *from, int64_t bytes, int64_t part, int64_t parts) {
    enum { LINE = 64 };
    for (int64_t at = bytes * part / parts; at < bytes * (part + 1) / parts; at += LINE)
        __builtin_prefetch((const char *)from + at, 0, 2);
}

static const ab_tensor *stored_piece(const ab_pass_stored *stored, int piece) {
    if (!stored) return NULL;
    return piece == AB_PIECE_SRC ? stored->src : piece == AB_PIECE_DOUT ? stored->dout : stored->dst;
}

void ab_piece_ask(const ab_image_pieces *pieces, const ab_pass_args *args, int piece, int64_t image,
                  int64_t images, int64_t part, int64_t parts) {
    const ab_tensor *tensor = stored_piece(args->stored, piece);
    if (image >= images || !tensor || ab_is_f32(tensor)) return;
    const int64_t bytes = (int64_t)ab_format_bytes(tensor->format, pieces->count[piece]);
    ab_fetch_part((const char *)tensor->data + image * bytes, bytes, part, parts);
}

float *ab_piece_target(const ab_image_pieces *pieces, const ab_pass_args *args, int64_t image) {
    const int64_t at = image * pieces->count[AB_PIECE_DST];
    if (!args->stored) return args->dst + at;
    return ab_target(args->stored->dst, at, buffer_of(pieces, args, AB_PIECE_DST));
}

void ab_piece_store(const ab_image_pieces *pieces, const ab_pass_args *args, int64_t image,
                    const float *result) {
    const int64_t n = pieces->count[AB_PIECE_DST];
    if (args->stored && !ab_is_f32(args->stored->dst))
        ab_emit(args->stored->exec, args->stored->dst, image * n, result, n);
}
