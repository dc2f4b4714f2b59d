/* tokenizer.c - opening a tokenizer from a file, cutting text at special tokens, asking about
 * tokens. */
#include "text/vocab.h"

#include <limits.h>

#define MAX_TEXT ((size_t)1 << 30) /* bytes per call: offsets inside are 32 bit */

/* ---- opening ---- */

static bitnet_status read_family(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    bnet_span model = {"", 0};
    bool found = false;
    char text[64];
    bitnet_status status = bnet_gguf_string(g, BNET_KEY_MODEL, &model, &found, err);
    if (status != BITNET_OK)
        return bnet_as_tokenizer(status, err);
    if (!found)
        return bnet_fail(err, BITNET_TOKENIZER, "%s: key %s is missing: the file has no tokenizer",
                         bnet_gguf_path(g), BNET_KEY_MODEL);
    t->spm = model.n == 5 && memcmp(model.data, "llama", 5) == 0;
    if (t->spm || (model.n == 4 && memcmp(model.data, "gpt2", 4) == 0))
        return BITNET_OK;
    return bnet_fail(
        err, BITNET_TOKENIZER, "%s: %s is \"%s\": no such tokenizer here (known: gpt2, llama)",
        bnet_gguf_path(g), BNET_KEY_MODEL, bnet_quote(model.data, model.n, text, sizeof text));
}

/* The id under a key, checked against the vocabulary; -1 if the key is absent. */
static bitnet_status read_id(const bnet_tokenizer *t, const bnet_gguf *g, const char *key,
                             int32_t *id, bitnet_error *err)
{
    int64_t v = -1;
    bitnet_status status = bnet_gguf_int(g, key, 0, (int64_t)t->tokens.n - 1, &v, NULL, err);
    *id = (int32_t)v;
    return bnet_as_tokenizer(status, err);
}

/* Files that do not say: SentencePiece has fixed places, the others known names. */
static int32_t usual_id(const bnet_tokenizer *t, int32_t spm_id, const char *const *names)
{
    if (t->spm)
        return (size_t)spm_id < t->tokens.n && bnet_type_special(bnet_type_of(t, (size_t)spm_id))
                   ? spm_id
                   : -1;
    int32_t id = -1;
    for (; *names && id < 0; names++)
        id = bnet_special_find(t, *names, strlen(*names));
    return id;
}

static bitnet_status read_ids(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    static const char *const bos[] = {"<|begin_of_text|>", "<s>", NULL};
    static const char *const eos[] = {"<|end_of_text|>", "<|endoftext|>", "</s>", NULL};
    static const char *const unknown[] = {"<unk>", NULL};
    bitnet_status status = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, err);
    if (status == BITNET_OK)
        status = read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, err);
    if (status == BITNET_OK)
        status = read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unknown, err);
    if (t->bos < 0)
        t->bos = usual_id(t, 1, bos);
    if (t->eos < 0)
        t->eos = usual_id(t, 2, eos);
    if (t->unknown < 0)
        t->unknown = usual_id(t, 0, unknown);
    return status;
}

static void add_stop(bnet_tokenizer *t, int32_t id)
{
    if (id >= 0 && !bnet_token_stops(t, id) && t->n_stops < BNET_MAX_STOPS)
        t->stops[t->n_stops++] = id;
}

static bitnet_status read_stops(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const names[] = {"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|im_end|>",
                                        "<|end|>",    "<|endoftext|>",   "</s>"};
    add_stop(t, t->eos);
    for (size_t i = 0; i < BNET_COUNT(keys); i++) {
        int32_t id;
        bitnet_status status = read_id(t, g, keys[i], &id, err);
        if (status != BITNET_OK)
            return status;
        add_stop(t, id);
    }
    for (size_t i = 0; i < BNET_COUNT(names); i++)
        add_stop(t, bnet_special_find(t, names[i], strlen(names[i])));
    return BITNET_OK;
}

static bitnet_status read_bos_rule(bnet_tokenizer *t, const bnet_gguf *g, const bnet_log *log,
                                   bitnet_error *err)
{
    bool found = false;
    bitnet_status status =
        bnet_gguf_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, &found, err);
    if (found && t->adds_bos && t->bos < 0)
        bnet_logf(log, BITNET_LOG_WARN, "tokenizer",
                  "%s: tokenizer.ggml.add_bos_token is set, but the file names no BOS token",
                  bnet_gguf_path(g));
    t->adds_bos = t->adds_bos && t->bos >= 0;
    return bnet_as_tokenizer(status, err);
}

/* A key of the wrong type is a file without a template. */
static bitnet_status read_chat(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    bnet_span source = {"", 0};
    bnet_gguf_string(g, "tokenizer.chat_template", &source, NULL, NULL);
    return bnet_chat_own_open(t, source, &t->own, err);
}

static bitnet_status open_all(bnet_tokenizer *t, const bnet_gguf *g, uint64_t n_vocab,
                              const bnet_log *log, bitnet_error *err)
{
    bitnet_status status = read_family(t, g, err);
    if (status == BITNET_OK)
        status = bnet_vocab_open(t, g, n_vocab, err);
    if (status == BITNET_OK)
        status = bnet_specials_open(t, err);
    if (status == BITNET_OK)
        status = read_ids(t, g, err);
    if (status == BITNET_OK)
        status = t->spm ? bnet_spm_open(t, g, err) : bnet_bpe_open(t, g, log, err);
    if (status == BITNET_OK)
        status = read_bos_rule(t, g, log, err);
    if (status == BITNET_OK)
        status = read_stops(t, g, err);
    if (status == BITNET_OK)
        status = read_chat(t, g, err);
    return status;
}

bitnet_status bnet_tokenizer_open(const bnet_gguf *g, uint64_t n_vocab, const bnet_log *log,
                                  bnet_tokenizer **out, bitnet_error *err)
{
    bnet_tokenizer *t = bnet_calloc(1, sizeof *t);
    if (!t)
        return bnet_no_memory(err, "tokenizer");
    pthread_mutex_init(&t->trie_lock, NULL);
    bitnet_status status = open_all(t, g, n_vocab, log, err);
    if (status == BITNET_OK)
        *out = t;
    else
        bnet_tokenizer_close(t);
    return status;
}

void bnet_tokenizer_close(bnet_tokenizer *t)
{
    if (!t)
        return;
    bnet_trie_free(t->trie);
    pthread_mutex_destroy(&t->trie_lock);
    bnet_chat_own_close(t->own);
    bnet_splitter_close(t->splitter);
    bnet_index_close(&t->by_merge);
    bnet_texts_close(&t->merges);
    bnet_free(t->specials.list);
    bnet_free(t->specials.reversed);
    bnet_free(t->specials.nodes);
    bnet_index_close(&t->by_text);
    bnet_free(t->bytes_at);
    bnet_free(t->bytes);
    bnet_free(t->types);
    bnet_texts_close(&t->tokens);
    bnet_free(t);
}

/* ---- text to ids ---- */

typedef struct cutter {
    const bnet_tokenizer *t;
    bnet_scratch scratch;
    bnet_special_hits hits;
    bnet_ids *out;
    bool after_special; /* also at the start */
} cutter;

static bitnet_status encode_text(cutter *c, const char *text, size_t n, bitnet_error *err)
{
    if (n == 0)
        return BITNET_OK;
    bool prefix = c->after_special && c->t->space_prefix;
    c->after_special = false;
    if (c->t->spm)
        return bnet_spm_encode(c->t, text, n, prefix, &c->scratch, c->out, err);
    return bnet_bpe_encode(c->t, text, n, &c->scratch, c->out, err);
}

static bitnet_status encode_fragments(cutter *c, const char *text, size_t n, bool all,
                                      bitnet_error *err)
{
    const bnet_specials *specials = &c->t->specials;
    size_t start = 0;
    if ((all ? specials->n : specials->n_user) &&
        !bnet_special_scan(c->t, text, n, all, &c->scratch, &c->hits))
        return bnet_scratch_fail(&c->scratch, err);
    for (size_t i = c->hits.n; i-- > 0;) { /* from the first in the text to the last */
        size_t at = c->hits.data[i].at;
        const bnet_special *special = &specials->reversed[c->hits.data[i].which];
        if (at < start) /* inside the one before */
            continue;
        bitnet_status status = encode_text(c, text + start, at - start, err);
        if (status == BITNET_OK && !bnet_ids_push(c->out, special->id))
            status = bnet_no_memory(err, "token ids");
        if (status != BITNET_OK)
            return status;
        c->after_special = true;
        start = at + special->n;
    }
    return encode_text(c, text + start, n - start, err);
}

static bool begins_with_bos(const bnet_tokenizer *t, const char *text, size_t n, bool all)
{
    int32_t id;
    return bnet_special_match(t, text, n, all, &id) && id == t->bos;
}

bitnet_status bnet_tokenize(const bnet_tokenizer *t, const char *text, size_t n, unsigned flags,
                            bnet_ids *out, const bnet_cancel *cancel, bitnet_error *err)
{
    bool all = (flags & BITNET_TEXT_SPECIAL) != 0;
    cutter c = {.t = t, .out = out, .after_special = true};
    if (cancel)
        c.scratch.cancel = *cancel;
    size_t n_before = out->n;
    bitnet_status status = BITNET_OK;
    if (n > MAX_TEXT)
        return bnet_fail(err, BITNET_ARGUMENT, "text of %zu bytes: at most %zu at a time", n,
                         MAX_TEXT);
    if ((flags & BITNET_TEXT_BOS) && t->adds_bos && !begins_with_bos(t, text, n, all) &&
        !bnet_ids_push(out, t->bos))
        status = bnet_no_memory(err, "token ids");
    if (status == BITNET_OK)
        status = encode_fragments(&c, text, n, all, err);
    if (status != BITNET_OK)
        out->n = n_before;
    bnet_scratch_free(&c.scratch);
    bnet_free(c.hits.data);
    return status;
}

/* ---- about tokens ---- */

const char *bnet_tokenizer_name(const bnet_tokenizer *t)
{
    return t->name;
}

size_t bnet_tokenizer_size(const bnet_tokenizer *t)
{
    return t->tokens.n;
}

int32_t bnet_tokenizer_bos(const bnet_tokenizer *t)
{
    return t->bos;
}

int32_t bnet_tokenizer_eos(const bnet_tokenizer *t)
{
    return t->eos;
}

bool bnet_tokenizer_adds_bos(const bnet_tokenizer *t)
{
    return t->adds_bos;
}

static bool in_range(const bnet_tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->tokens.n;
}

const char *bnet_token_bytes(const bnet_tokenizer *t, int32_t id, size_t *n)
{
    if (!in_range(t, id))
        return NULL;
    *n = t->bytes_at[id + 1] - t->bytes_at[id];
    return t->bytes + t->bytes_at[id];
}

size_t bnet_token_longest(const bnet_tokenizer *t)
{
    size_t longest = 0;
    for (size_t id = 0; id < t->tokens.n; id++)
        longest = BNET_MAX(longest, (size_t)(t->bytes_at[id + 1] - t->bytes_at[id]));
    return longest;
}

bool bnet_token_special(const bnet_tokenizer *t, int32_t id)
{
    return in_range(t, id) && bnet_type_special(bnet_type_of(t, (size_t)id));
}

bool bnet_token_stops(const bnet_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_stops; i++)
        if (t->stops[i] == id)
            return true;
    return false;
}

size_t bnet_token_stop_list(const bnet_tokenizer *t, const int32_t **ids)
{
    *ids = t->stops;
    return t->n_stops;
}

bool bnet_token_find(const bnet_tokenizer *t, const char *text, size_t n, int32_t *id)
{
    uint32_t number;
    int32_t special = bnet_special_find(t, text, n);
    if (special >= 0) {
        *id = special;
        return true;
    }
    if (bnet_index_get(&t->by_text, &t->tokens, text, n, false, &number)) {
        *id = (int32_t)number;
        return true;
    }
    for (size_t i = 0; i < t->tokens.n; i++) { /* bytes and unused ones are in neither list */
        bnet_span s = bnet_text_at(&t->tokens, i);
        if (s.n == n && memcmp(s.data, text, n) == 0) {
            *id = (int32_t)i;
            return true;
        }
    }
    return false;
}
