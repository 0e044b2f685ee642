/* Text as bytes: a token is a byte. */
#include "bench/data/text.h"

static int64_t tokenise(const void *self, const char *byte, int64_t size, int32_t *token, int64_t most) {
    (void)self;
    for (int64_t i = 0; i < size && i < most && token; i++) token[i] = (uint8_t)byte[i];
    return size;
}

static ab_status check_bytes(const ab_text *text, const ab_data_request *request) {
    for (int64_t i = 0; i < text->size; i++)
        if ((uint8_t)text->byte[i] >= request->shape->vocabulary)
            return ab_fail(AB_INPUT,
                           "--data bytes:%s: expected bytes below the net's vocabulary of %lld, found %d",
                           request->path, (long long)request->shape->vocabulary, (int)(uint8_t)text->byte[i]);
    return AB_OK;
}

static ab_status load(ab_data *data, const ab_data_request *request) {
    ab_text text;
    AB_TRY(ab_text_read(request->path, request->shape->targets != AB_TARGETS_TOKENS, &text));
    ab_status status = check_bytes(&text, request);
    if (status == AB_OK) status = ab_text_cut(data, request, &text, tokenise, NULL);
    ab_text_free(&text);
    return status;
}

const ab_data_source ab_data_source_bytes = {
    .name = "bytes",
    .text =
        "bytes:PATH: a file or directory of text, a token is a byte; for classes a directory of directories",
    .kind = AB_INPUT_TOKENS,
    .reads_path = true,
    .load = load,
};
