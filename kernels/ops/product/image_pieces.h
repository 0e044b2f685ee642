/* Images of the tensors of a pass, one at a time: in place if they are fp32, else widened into and rounded
 * from a buffer of the calling thread while the image is in cache.
 *
 * Internal to kernels/ops/product. */
#ifndef AB_KERNELS_OPS_PRODUCT_IMAGE_PIECES_H
#define AB_KERNELS_OPS_PRODUCT_IMAGE_PIECES_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* The tensors of which a thread has one image at a time. */
enum { AB_PIECE_SRC, AB_PIECE_DOUT, AB_PIECE_DST, AB_PIECES };

/* A thread's part of the scratch: memory of its own, then an fp32 image of each tensor. */
typedef struct ab_image_pieces {
    int64_t count[AB_PIECES];       /* elements of an image of src, dout and dst; 0: not used */
    size_t own_bytes, thread_bytes; /* a thread's own memory, a multiple of AB_ALIGN; with its images */
} ab_image_pieces;

/* Those of a pass whose threads need own_bytes of their own; images only if spec->stored. */
ab_image_pieces ab_image_pieces_of(const ab_pass_spec *spec, size_t own_bytes);

/* The calling thread's own memory. */
float *ab_piece_memory(const ab_image_pieces *pieces, const ab_pass_args *args);

/* An image of src or dout in fp32. */
const float *ab_piece_read(const ab_image_pieces *pieces, const ab_pass_args *args, int piece, int64_t image);

/* Asks for part `part` of `parts` of an image, to be near when it is widened, or rounded to; all parts
 * together are the image. Nothing if there is no such image, or if it is fp32: loops that compute fetch those
 * well ahead themselves. */
void ab_piece_ask(const ab_image_pieces *pieces, const ab_pass_args *args, int piece, int64_t image,
                  int64_t images, int64_t part, int64_t parts);

/* Fetches part `part` of `parts` of `bytes` bytes: all parts together are all of them. */
void ab_fetch_part(const void *from, int64_t bytes, int64_t part, int64_t parts);

/* Where to compute an image of dst; ab_piece_store then rounds it to the tensor if it is half. */
float *ab_piece_target(const ab_image_pieces *pieces, const ab_pass_args *args, int64_t image);
void ab_piece_store(const ab_image_pieces *pieces, const ab_pass_args *args, int64_t image,
                    const float *result);

AB_END_DECLS

#endif
