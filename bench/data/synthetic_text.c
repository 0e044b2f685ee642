/* Procedural text: no files, the same tokens on every machine. An artificial language of words, each with
 * four likely successors that depend on the topic; the topic is the class of a sample, or changes per
 * sentence where the target is the next token. A bigram model can reach the lower bound of 1.75 bits per
 * word. It replaces missing text and does not represent any language.
 *
 * Tokens follow the net's vocabulary: words from 1,024 on, ASCII letters from 128 on, letters numbered from 1
 * below that; 0 or a space separates spelled words. */
#include "bench/data/data.h"

#include "kernels/core/rng.h"
#include "kernels/core/text.h"

#include <stdio.h>

enum { TRAIN = 4096, TEST = 512, WORDS = 512, FOLLOWERS = 4, TOPICS = 8, SENTENCE = 16, LONGEST_WORD = 8 };
enum { WORD_VOCABULARY = 1024, ASCII_VOCABULARY = 128, LETTERS = 26 };

/* State of a stream of words. */
typedef struct speaker {
    uint64_t seed;
    uint32_t stream; /* of random numbers */
    uint64_t words;  /* so far */
    uint32_t word, topic;
    int64_t topics, vocabulary;        /* topics 0: a new topic per sentence */
    int32_t spelled[LONGEST_WORD + 1]; /* tokens of the word */
    int length, next;
} speaker;

/* A number in [0, bound) that depends only on (what, which): the language is the same for every seed. */
static uint32_t of_language(uint32_t what, uint64_t which, uint32_t bound) {
    return (uint32_t)ab_rng_below(0, AB_RNG_SYNTHETIC, what, which, bound);
}

/* Topics prefer words of their own half of the list. */
static uint32_t follower(uint32_t word, uint32_t topic, uint32_t which) {
    uint64_t key = ((uint64_t)topic * WORDS + word) * FOLLOWERS + which;
    return (topic * (WORDS / TOPICS) + of_language(1, key, WORDS / 2)) % WORDS;
}

static void next_word(speaker *s) {
    static const uint32_t last[FOLLOWERS] = {0x7fffffffu, 0xbfffffffu, 0xdfffffffu, 0xffffffffu};
    ab_rng_block random = ab_rng_at(s->seed, AB_RNG_SYNTHETIC, s->stream, s->words);
    uint32_t which = 0;
    while (random.word[0] > last[which]) which++;
    if (s->topics == 0 && s->words % SENTENCE == 0) s->topic = random.word[1] % TOPICS;
    s->word = follower(s->word, s->topic, which);
    s->words++;
}

static int32_t letter(const speaker *s, uint32_t which) {
    if (s->vocabulary >= ASCII_VOCABULARY) return (int32_t)('a' + which);
    return (int32_t)(1 + which % (uint32_t)(s->vocabulary - 1));
}

static void spell(speaker *s) {
    s->next = s->length = 0;
    if (s->vocabulary >= WORD_VOCABULARY) {
        s->spelled[s->length++] = (int32_t)s->word + 1;
        return;
    }
    int letters = 2 + (int)of_language(2, s->word, LONGEST_WORD - 2);
    for (int i = 0; i < letters; i++)
        s->spelled[s->length++] =
            letter(s, of_language(3, (uint64_t)s->word * LONGEST_WORD + (uint64_t)i, LETTERS));
    s->spelled[s->length++] = s->vocabulary >= ASCII_VOCABULARY ? ' ' : 0;
}

static int32_t next_token(speaker *s) {
    if (s->next == s->length) {
        next_word(s);
        spell(s);
    }
    return s->spelled[s->next++];
}

/* One stream of count * length + 1 tokens. */
static void speak_on(ab_images *split, int64_t length, speaker s) {
    int32_t *token = (int32_t *)(void *)split->pixel;
    s.topics = 0;
    for (int64_t i = 0; i < split->count * length + 1; i++) token[i] = next_token(&s);
}

/* Samples are independent, each on one topic. */
static void speak_on_topics(ab_images *split, int64_t length, int64_t topics, const speaker *first) {
    int32_t *token = (int32_t *)(void *)split->pixel;
    for (int64_t i = 0; i < split->count; i++) {
        speaker s = *first;
        s.stream += (uint32_t)i;
        s.topics = topics;
        s.topic = ab_rng_at(s.seed, AB_RNG_SYNTHETIC, s.stream, UINT64_MAX).word[0] % (uint32_t)topics;
        split->label[i] = (uint8_t)s.topic;
        for (int64_t k = 0; k < length; k++) *token++ = next_token(&s);
    }
}

static ab_status make_split(ab_data *data, int which, int64_t count, const speaker *s) {
    ab_images *split = &data->split[which];
    const int64_t length = data->shape.x.dim[0];
    const bool next = data->labels == AB_LABELS_NEXT;
    split->count = count;
    AB_TRY(ab_block_create(&split->pixels, (size_t)(count * length + 1) * sizeof(int32_t), "synthetic text"));
    split->pixel = split->pixels.bytes;
    if (next) {
        speak_on(split, length, *s);
        return AB_OK;
    }
    AB_TRY(ab_block_create(&split->labels, (size_t)count, "synthetic text"));
    split->label = split->labels.bytes;
    speak_on_topics(split, length, data->classes, s);
    return AB_OK;
}

static ab_status load(ab_data *data, const ab_data_request *request) {
    const ab_data_shape *shape = request->shape;
    const int64_t most = shape->classes > 0 && shape->classes < TOPICS ? shape->classes : TOPICS;
    const speaker train = {.seed = request->seed, .stream = 4, .vocabulary = shape->vocabulary};
    speaker test = train;
    test.stream += TRAIN;
    data->labels = shape->targets == AB_TARGETS_TOKENS ? AB_LABELS_NEXT : AB_LABELS_BYTES;
    data->classes = data->labels == AB_LABELS_NEXT ? 0 : most;
    ab_text_show(data->origin, sizeof data->origin, "procedural, seed %llu",
                 (unsigned long long)request->seed);
    AB_TRY(make_split(data, AB_SPLIT_TRAIN, TRAIN, &train));
    return make_split(data, AB_SPLIT_TEST, TEST, &test);
}

const ab_data_source ab_data_source_synthetic_text = {
    .name = "synthetic_text",
    .text = "procedural: 4,096 + 512 samples of a made-up language of 512 words, as words or letters as the "
            "net's vocabulary allows; next tokens or 8 topics; no files",
    .kind = AB_INPUT_TOKENS,
    .load = load,
};
