/* fuzz_tokenize.c - any vocabulary metadata, then any text through tokenize and back.
 *
 * Input: byte 0 chooses the vocabulary (bits 0-1: llama-3, gpt-2, SentencePiece, SentencePiece
 * without space prefix) and the flags (bits 2-3); bit 7 set: what follows spoils the vocabulary
 * before it is opened (see spoil). The rest is text. What must hold: no crash, and
 * decode(encode(text)) == text for every text without U+2581. */
#include "text/tokenizer.h"

#include "../unit/text/vocab_build.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_tokenize: %s\n", #what);                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void choose(vocab *v, unsigned kind)
{
    if (kind < 2)
        bpe_base(v);
    else
        spm_base(v);
    if (kind == 1)
        v->pre = "gpt-2";
    if (kind == 3)
        v->space_prefix = 0;
}

/* Opened once each: the texts are what is fuzzed. */
static const bnet_tokenizer *sound_vocabulary(unsigned kind)
{
    static bnet_tokenizer *opened[4];
    static bnet_gguf *files[4];
    if (!opened[kind]) {
        static vocab v;
        choose(&v, kind);
        files[kind] = vocab_write(&v);
        CHECK(files[kind]);
        CHECK(bnet_tokenizer_open(files[kind], 0, NULL, &opened[kind], NULL) == BITNET_OK);
    }
    return opened[kind];
}

static bool has_space_mark(const char *s, size_t n)
{
    return memmem(s, n, "\xe2\x96\x81", 3) != NULL;
}

/* Bytes that the decoded text has in front because a BOS was added and is printed. */
static size_t added_bos(const bnet_tokenizer *t, const char *text, size_t n, unsigned flags)
{
    size_t n_name;
    const char *name = bnet_token_bytes(t, bnet_tokenizer_bos(t), &n_name);
    if (!(flags & BITNET_TEXT_BOS) || !(flags & BITNET_TEXT_SPECIAL) || !bnet_tokenizer_adds_bos(t))
        return 0;
    return n >= n_name && memcmp(text, name, n_name) == 0 ? 0 : n_name;
}

static void round_trip(const bnet_tokenizer *t, const char *text, size_t n, unsigned flags,
                       bool exact)
{
    bnet_ids ids = {0};
    bnet_str back = {0};
    bnet_detok d;
    bitnet_error err = {0};
    CHECK(bnet_tokenize(t, text, n, flags, &ids, NULL, &err) == BITNET_OK);
    size_t n_name = added_bos(t, text, n, flags);
    bnet_detok_init(&d, t, (flags & BITNET_TEXT_SPECIAL) != 0, true);
    for (size_t i = 0; i < ids.n; i++) {
        size_t n_token;
        const char *bytes = bnet_token_bytes(t, ids.data[i], &n_token);
        CHECK(bytes && (size_t)ids.data[i] < bnet_tokenizer_size(t));
        bnet_detok_push(&d, ids.data[i], &back);
    }
    bnet_detok_finish(&d, &back);
    CHECK(!back.failed);
    if (exact) {
        CHECK(back.n == n + n_name);
        CHECK(n == 0 || memcmp(back.data + n_name, text, n) == 0);
    }
    bnet_free(ids.data);
    bnet_str_free(&back);
}

/* Questions about a token that happens to be spelled like the text. */
static void ask(const bnet_tokenizer *t, const char *text, size_t n)
{
    int32_t id = bnet_tokenizer_eos(t);
    CHECK(id < 0 || bnet_token_stops(t, id));
    CHECK(bnet_tokenizer_name(t)[0]);
    if (!bnet_token_find(t, text, n, &id))
        return;
    CHECK(id >= 0 && (size_t)id < bnet_tokenizer_size(t));
    CHECK(!bnet_token_special(t, id) || !bnet_token_special(t, -1 - id));
}

static const char *const keys[] = {
    "tokenizer.ggml.model",         "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",        "tokenizer.ggml.token_type",
    "tokenizer.ggml.scores",        "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",  "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.eot_token_id",  "tokenizer.ggml.unknown_token_id"};
static const char *const pres[] = {"gpt-2", "default", "llama3", "no-such"};
static const char *const merges[] = {"", "x", " y", "z ", "a a", "aa a", "  ", "h e"};
static const char *const models[] = {NULL, "gpt2", "llama", "bert"};

/* A length of an array beside n tokens: left out, one short, right, one long. */
static size_t odd_length(size_t n, size_t at)
{
    return at % 4 == 3 ? SIZE_MAX : n + at % 4 - 1;
}

static void spoil_arrays(vocab *v, unsigned what, size_t at)
{
    size_t near_end = (v->n > 30 ? v->n - 1 : 30) - at % 30;
    switch (what) {
    case 0:
        v->n = v->n > at ? v->n - at : 1;
        break;
    case 1:
        v->n_types = odd_length(v->n, at);
        break;
    case 2:
        v->n_scores = odd_length(v->n, at);
        break;
    case 3:
        v->n_merges = at % 4 ? at % 4 : SIZE_MAX;
        break;
    case 4:
        v->merges[at % 4] = merges[at / 4 % 8];
        break;
    case 5:
        v->type[at] = (int32_t)(at % 9) - 1;
        break;
    case 6:
        v->type[near_end] = 2 + (int32_t)(at % 3);
        break;
    default:
        memset(v->text[at], 'a' + (int)(at % 7), at % 40);
        v->text_n[at] = at % 40;
        break;
    }
}

static void spoil_values(vocab *v, unsigned what, size_t at)
{
    switch (what) {
    case 0:
        v->wrong_type = keys[at % 12];
        break;
    case 1:
        v->pre = at % 5 ? pres[at % 4] : NULL;
        break;
    case 2:
        v->bos = (int64_t)at * 2 - 1;
        break;
    case 3:
        v->eos = v->eot = (int64_t)at * 2 - 1;
        break;
    case 4:
        v->unknown = (int64_t)at - 1;
        break;
    case 5:
        memcpy(&v->score[at], &(uint32_t){0x7fc00000u}, 4);
        break;
    case 6:
        v->add_bos = (int)(at % 3) - 1;
        break;
    default:
        v->model = models[at % 4];
        break;
    }
}

/* Each pair of bytes is one change of the vocabulary: which, and where or how much. */
static void spoil(vocab *v, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        (data[i] & 8 ? spoil_arrays : spoil_values)(v, data[i] & 7, data[i + 1]);
}

static void spoilt_vocabulary(unsigned kind, unsigned flags, const uint8_t *data, size_t n)
{
    static vocab v;
    bnet_tokenizer *t = NULL;
    bitnet_error err = {0};
    size_t n_changes = n < 16 ? n : 16;
    choose(&v, kind);
    spoil(&v, data, n_changes);
    bnet_gguf *g = vocab_write(&v);
    CHECK(g);
    bitnet_status status = bnet_tokenizer_open(g, 0, NULL, &t, &err);
    if (status == BITNET_OK)
        round_trip(t, (const char *)data + n_changes, n - n_changes, flags, false);
    if (status == BITNET_OK)
        ask(t, (const char *)data + n_changes, n - n_changes);
    else
        CHECK(status == BITNET_TOKENIZER && err.message[0]);
    bnet_tokenizer_close(t);
    bnet_gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    unsigned kind = data[0] & 3, flags = data[0] >> 2 & 3;
    const char *text = (const char *)data + 1;
    size_t n = n_bytes - 1;
    if (data[0] & 0x80)
        spoilt_vocabulary(kind, flags, data + 1, n);
    else
        round_trip(sound_vocabulary(kind), text, n, flags, kind < 2 || !has_space_mark(text, n));
    ask(sound_vocabulary(kind), text, n);
    return 0;
}
