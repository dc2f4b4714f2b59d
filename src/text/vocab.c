/* vocab.c - the vocabulary of a file: texts, types, and the bytes every token stands for. Trusts
 * nothing it reads. */
#include "text/vocab.h"

bitnet_status bnet_as_tokenizer(bitnet_status status, bitnet_error *err)
{
    if (status != BITNET_MODEL)
        return status;
    if (err)
        err->status = BITNET_TOKENIZER;
    return BITNET_TOKENIZER;
}

int bnet_byte_text(bnet_span s)
{
    if (s.n != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>')
        return -1;
    int high = bnet_hex_digit(s.data[3]), low = bnet_hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static bitnet_status read_tokens(bnet_tokenizer *t, const bnet_gguf *g, uint64_t n_vocab,
                                 bitnet_error *err)
{
    const bnet_gguf_kv *kv;
    const char *path = bnet_gguf_path(g);
    bitnet_status status = bnet_gguf_array(g, BNET_KEY_TOKENS, BNET_GGUF_STRING, &kv, err);
    if (status != BITNET_OK)
        return bnet_as_tokenizer(status, err);
    if (!kv)
        return bnet_fail(err, BITNET_TOKENIZER, "%s: key %s is missing: the file has no vocabulary",
                         path, BNET_KEY_TOKENS);
    if (kv->count == 0 || kv->count > INT32_MAX)
        return bnet_fail(err, BITNET_TOKENIZER,
                         "%s: %s has %llu tokens, expected 1..%d (offset 0x%llx)", path,
                         BNET_KEY_TOKENS, (unsigned long long)kv->count, INT32_MAX,
                         (unsigned long long)kv->offset);
    if (n_vocab && kv->count > n_vocab)
        return bnet_fail(
            err, BITNET_TOKENIZER, "%s: %s has %llu tokens, but the embedding only %llu rows", path,
            BNET_KEY_TOKENS, (unsigned long long)kv->count, (unsigned long long)n_vocab);
    return bnet_texts_open(&t->tokens, g, kv, err);
}

/* For files without types: names of the form <|...|> are special, <0xNN> of SentencePiece are
 * bytes. */
static uint8_t guess_type(const bnet_tokenizer *t, size_t i)
{
    bnet_span s = bnet_text_at(&t->tokens, i);
    if (t->spm && bnet_byte_text(s) >= 0)
        return BNET_TOKEN_BYTE;
    if (t->spm && i < 3)
        return i == 0 ? BNET_TOKEN_UNKNOWN : BNET_TOKEN_CONTROL;
    bool marked = s.n > 4 && memcmp(s.data, "<|", 2) == 0 && memcmp(s.data + s.n - 2, "|>", 2) == 0;
    return marked ? BNET_TOKEN_CONTROL : BNET_TOKEN_NORMAL;
}

static bitnet_status bad_count(const bnet_tokenizer *t, const bnet_gguf *g, const char *key,
                               const bnet_gguf_kv *kv, bitnet_error *err)
{
    return bnet_fail(err, BITNET_TOKENIZER,
                     "%s: %s has %llu elements for %zu tokens (offset 0x%llx)", bnet_gguf_path(g),
                     key, (unsigned long long)kv->count, t->tokens.n,
                     (unsigned long long)kv->offset);
}

static bitnet_status read_types(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    const bnet_gguf_kv *kv;
    bitnet_status status = bnet_gguf_array(g, BNET_KEY_TYPES, BNET_GGUF_I32, &kv, err);
    if (status != BITNET_OK)
        return bnet_as_tokenizer(status, err);
    if (kv && kv->count != t->tokens.n)
        return bad_count(t, g, BNET_KEY_TYPES, kv, err);
    if (!(t->types = bnet_alloc(t->tokens.n)))
        return bnet_no_memory(err, "vocabulary");
    for (size_t i = 0; i < t->tokens.n; i++) {
        uint32_t type = kv ? bnet_u32(kv->data + 4 * i) : guess_type(t, i);
        if (type >= BNET_TOKEN_TYPES)
            return bnet_fail(err, BITNET_TOKENIZER,
                             "%s: %s[%zu] is %d, expected 0..%d (offset 0x%llx)", bnet_gguf_path(g),
                             BNET_KEY_TYPES, i, (int)type, BNET_TOKEN_TYPES - 1,
                             (unsigned long long)(kv->offset + 4 * i));
        t->types[i] = (uint8_t)type;
    }
    return BITNET_OK;
}

static bitnet_status read_scores(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    const bnet_gguf_kv *kv;
    bitnet_status status = bnet_gguf_array(g, BNET_KEY_SCORES, BNET_GGUF_F32, &kv, err);
    if (status != BITNET_OK)
        return bnet_as_tokenizer(status, err);
    if (!kv)
        return bnet_fail(err, BITNET_TOKENIZER,
                         "%s: key %s is missing: a SentencePiece vocabulary needs it",
                         bnet_gguf_path(g), BNET_KEY_SCORES);
    if (kv->count != t->tokens.n)
        return bad_count(t, g, BNET_KEY_SCORES, kv, err);
    t->scores = kv->data;
    for (size_t i = 0; i < t->tokens.n; i++) {
        float score = bnet_f32(kv->data + 4 * i);
        if (score != score)
            return bnet_fail(err, BITNET_TOKENIZER, "%s: %s[%zu] is not a number (offset 0x%llx)",
                             bnet_gguf_path(g), BNET_KEY_SCORES, i,
                             (unsigned long long)(kv->offset + 4 * i));
    }
    return BITNET_OK;
}

/* Bytes a token stands for; -1 for a byte token that names no byte. */
static int64_t decode_token(const bnet_tokenizer *t, size_t i, char *out)
{
    bnet_span s = bnet_text_at(&t->tokens, i);
    bnet_token_type type = bnet_type_of(t, i);
    if (type == BNET_TOKEN_BYTE) {
        int byte = bnet_byte_text(s);
        if (byte < 0 && t->spm)
            return -1;
        if (byte >= 0) {
            *out = (char)byte;
            return 1;
        }
    }
    if (bnet_type_special(type) || type == BNET_TOKEN_USER) {
        memcpy(out, s.data, s.n);
        return (int64_t)s.n;
    }
    return (int64_t)(t->spm ? bnet_spm_decode(s, out) : bnet_bpe_decode(t, s, out));
}

static bitnet_status decode_tokens(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    /* No token grows when decoded, so the texts' bytes are room enough: below 4 GiB, as
     * bnet_texts_open saw. */
    t->bytes = bnet_alloc(t->tokens.n_bytes);
    t->bytes_at = bnet_calloc(t->tokens.n + 1, sizeof *t->bytes_at);
    if (!t->bytes || !t->bytes_at)
        return bnet_no_memory(err, "vocabulary");
    uint32_t at = 0;
    for (size_t i = 0; i < t->tokens.n; i++) {
        int64_t n = decode_token(t, i, t->bytes + at);
        if (n < 0) {
            char text[64];
            bnet_span s = bnet_text_at(&t->tokens, i);
            return bnet_fail(err, BITNET_TOKENIZER,
                             "%s: %s[%zu] has the type of a byte, but \"%s\" is not <0x00>..<0xFF>",
                             bnet_gguf_path(g), BNET_KEY_TOKENS, i,
                             bnet_quote(s.data, s.n, text, sizeof text));
        }
        at += (uint32_t)n;
        t->bytes_at[i + 1] = at;
    }
    return BITNET_OK;
}

static bnet_fill fill_token(const void *owner, bnet_hash_key key, size_t i, uint64_t *hash)
{
    const bnet_tokenizer *t = owner;
    if (!bnet_type_plain(bnet_type_of(t, i)))
        return BNET_FILL_SKIP;
    bnet_span s = bnet_text_at(&t->tokens, i);
    *hash = bnet_hash(key, s.data, s.n, true);
    return BNET_FILL_PUT;
}

bitnet_status bnet_vocab_open(bnet_tokenizer *t, const bnet_gguf *g, uint64_t n_vocab,
                              bitnet_error *err)
{
    size_t bad; /* no token is */
    if (!t->spm)
        bnet_bpe_alphabet(t);
    bitnet_status status = read_tokens(t, g, n_vocab, err);
    if (status == BITNET_OK)
        status = read_types(t, g, err);
    if (status == BITNET_OK && t->spm)
        status = read_scores(t, g, err);
    if (status == BITNET_OK)
        status = decode_tokens(t, g, err);
    if (status == BITNET_OK)
        status = bnet_index_open(&t->by_text, &t->tokens, fill_token, t, &bad, err);
    return status;
}
