/* spm.c - SentencePiece BPE: characters joined by score, what is left over spelled in bytes.
 * A space is written U+2581 in the vocabulary; a text that begins, or follows a special token, gets
 * one in front. */
#include "text/vocab.h"

static const char space_mark[] = "\xe2\x96\x81"; /* U+2581 */
#define N_MARK 3

size_t bnet_spm_decode(bnet_span s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        bool mark = s.n - i >= N_MARK && memcmp(s.data + i, space_mark, N_MARK) == 0;
        out[n++] = mark ? ' ' : s.data[i];
        i += mark ? N_MARK : 1;
    }
    return n;
}

/* Every byte needs a token: its own, or the unknown one. */
static bitnet_status find_bytes(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    for (int b = 0; b < 256; b++)
        t->byte_id[b] = t->unknown;
    for (size_t i = t->tokens.n; i-- > 0;)
        if (bnet_type_of(t, i) == BNET_TOKEN_BYTE)
            t->byte_id[(unsigned char)t->bytes[t->bytes_at[i]]] = (int32_t)i;
    for (int b = 0; b < 256; b++)
        if (t->byte_id[b] < 0)
            return bnet_fail(err, BITNET_TOKENIZER,
                             "%s: %s has neither the byte token <0x%02X> nor an unknown token: "
                             "some texts could not be written (%zu tokens)",
                             bnet_gguf_path(g), BNET_KEY_TOKENS, (unsigned)b, t->tokens.n);
    return BITNET_OK;
}

bitnet_status bnet_spm_open(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    t->name = "spm";
    t->adds_bos = t->space_prefix = true;
    bitnet_status status =
        bnet_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &t->space_prefix, NULL, err);
    if (status != BITNET_OK)
        return bnet_as_tokenizer(status, err);
    return find_bytes(t, g, err);
}

/* Higher scores join first: the order of floats, turned around, as an unsigned number. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are one score */
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static bool find_pair(const void *owner, const char *s, size_t n_left, size_t n_right,
                      uint32_t *rank)
{
    const bnet_tokenizer *t = owner;
    uint32_t id;
    if (n_left + n_right > t->tokens.longest ||
        !bnet_index_ends(&t->by_text, s[0], s[n_left + n_right - 1]) ||
        !bnet_index_get(&t->by_text, &t->tokens, s, n_left + n_right, true, &id))
        return false;
    *rank = rank_of_score(bnet_f32(t->scores + 4 * (size_t)id));
    return true;
}

/* Writes the text with marked spaces and a symbol for every character; invalid bytes are characters
 * too. */
static bool spell(const char *text, size_t n, bool prefix, bnet_scratch *s)
{
    s->n = 0;
    if (!bnet_grow(&s->text.data, &s->text.cap, BNET_ROOM + N_MARK * (n + 1), 1))
        return false;
    char *out = s->text.data + BNET_ROOM;
    if (prefix) {
        memcpy(out, space_mark, N_MARK);
        out += N_MARK;
        if (!bnet_symbol_add(s, N_MARK))
            return false;
    }
    for (size_t i = 0; i < n;) {
        int len = bnet_utf8_len(text + i, n - i);
        size_t n_in = len > 0 ? (size_t)len : 1;
        bool space = text[i] == ' ';
        size_t n_out = space ? N_MARK : n_in;
        memcpy(out, space ? space_mark : text + i, n_out);
        out += n_out;
        i += n_in;
        if (!bnet_symbol_add(s, (uint32_t)n_out))
            return false;
    }
    return true;
}

static bool emit_symbol(const bnet_tokenizer *t, const char *text, size_t n, bnet_ids *out)
{
    uint32_t id;
    if (bnet_index_get(&t->by_text, &t->tokens, text, n, true, &id))
        return bnet_ids_push(out, (int32_t)id);
    for (size_t i = 0; i < n; i++)
        if (!bnet_ids_push(out, t->byte_id[(unsigned char)text[i]]))
            return false;
    return true;
}

bitnet_status bnet_spm_encode(const bnet_tokenizer *t, const char *text, size_t n, bool prefix,
                              bnet_scratch *s, bnet_ids *out, bitnet_error *err)
{
    if (n == 0)
        return BITNET_OK;
    if (!spell(text, n, prefix, s) || !bnet_merge(s, find_pair, t))
        return bnet_scratch_fail(s, err);
    for (uint32_t i = 0; i != BNET_NO_SYMBOL; i = s->symbols[i].next)
        if (!bnet_scratch_go_on(s, 1) ||
            !emit_symbol(t, s->text.data + s->symbols[i].at, s->symbols[i].n, out))
            return bnet_scratch_fail(s, err);
    return BITNET_OK;
}
