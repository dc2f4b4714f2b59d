/* bpe.c - byte-level BPE: bytes spelled as printable characters, pieces from the splitter, merges
 * by rank.
 *
 * Merges stay in the file as texts; the index finds "left right" from two neighbouring symbols.
 * Reading them as pairs of token ids instead would cost three vocabulary look-ups for each of 280
 * thousand merges at every start. */
#include "text/vocab.h"

/* ---- the alphabet: printable Latin-1 stands for itself, the 68 other bytes for U+0100 and on ----
 */

static bool stands_for_itself(int b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

void bnet_bpe_alphabet(bnet_tokenizer *t)
{
    memset(t->char_byte, 0xff, sizeof t->char_byte);
    uint32_t next = 0x100;
    for (int b = 0; b < 256; b++) {
        uint32_t cp = stands_for_itself(b) ? (uint32_t)b : next++;
        char utf8[4];
        t->byte_char_n[b] = (uint8_t)bnet_utf8_encode(cp, utf8);
        memcpy(t->byte_char[b], utf8, 2);
        t->char_byte[cp] = (int16_t)b;
    }
}

/* The byte that the character at s stands for, -1 if none; *len bytes long. */
static int byte_at(const bnet_tokenizer *t, const char *s, size_t n, size_t *len)
{
    unsigned c = (unsigned char)s[0], cp = c;
    *len = 1;
    if (c >= 0x80) {
        if (c < 0xc2 || c > 0xc5 || n < 2 || ((unsigned char)s[1] & 0xc0) != 0x80)
            return -1;
        cp = (c & 0x1f) << 6 | ((unsigned char)s[1] & 0x3f);
        *len = 2;
    }
    return cp < BNET_BYTE_CHARS ? t->char_byte[cp] : -1;
}

size_t bnet_bpe_decode(const bnet_tokenizer *t, bnet_span s, char *out)
{
    size_t n = 0;
    for (size_t i = 0, len; i < s.n; i += len) {
        int byte = byte_at(t, s.data + i, s.n - i, &len);
        if (byte < 0) { /* not spelled in the alphabet: stands for itself */
            memcpy(out, s.data, s.n);
            return s.n;
        }
        out[n++] = (char)byte;
    }
    return n;
}

/* ---- opening ---- */

typedef struct pre_row {
    const char *name;
    bnet_split_kind kind;
} pre_row;

static const pre_row pre_rows[] = {
#define PRE(name, kind) {name, BNET_SPLIT_##kind},
#include "text/pre.inc"
#undef PRE
};

static bitnet_status unknown_pre(const bnet_gguf *g, bnet_span pre, bitnet_error *err)
{
    bnet_str known = {0};
    char text[64];
    for (size_t i = 0; i < BNET_COUNT(pre_rows); i++)
        bnet_str_addf(&known, "%s%s", i ? ", " : "", pre_rows[i].name);
    bitnet_status status =
        bnet_fail(err, BITNET_TOKENIZER, "%s: %s is \"%s\": no such splitter (known: %s, default)",
                  bnet_gguf_path(g), BNET_KEY_PRE, bnet_quote(pre.data, pre.n, text, sizeof text),
                  known.failed ? "" : known.data);
    bnet_str_free(&known);
    return status;
}

/* The published 2B-4T file names no splitter, and the general fallback of other programs is wrong
 * for it: its vocabulary is llama-3's, told by its size or by its names. */
static bnet_split_kind pre_from_vocabulary(const bnet_tokenizer *t, const bnet_gguf *g, bool found,
                                           const bnet_log *log)
{
    static const char bos[] = "<|begin_of_text|>", eot[] = "<|eot_id|>";
    bool llama = t->tokens.n == 128256;
    if (!llama)
        llama = bnet_special_find(t, bos, sizeof bos - 1) >= 0 &&
                bnet_special_find(t, eot, sizeof eot - 1) >= 0;
    bnet_logf(log, BITNET_LOG_WARN, "tokenizer",
              "%s: %s is %s: using the %s splitter, judging by the vocabulary", bnet_gguf_path(g),
              BNET_KEY_PRE, found ? "\"default\"" : "missing", llama ? "llama-3" : "gpt-2");
    return llama ? BNET_SPLIT_LLAMA3 : BNET_SPLIT_GPT2;
}

static bitnet_status choose_splitter(const bnet_tokenizer *t, const bnet_gguf *g,
                                     const bnet_log *log, bnet_split_kind *kind, bitnet_error *err)
{
    bnet_span pre = {"", 0};
    bool found = false;
    bitnet_status status = bnet_gguf_string(g, BNET_KEY_PRE, &pre, &found, err);
    if (status != BITNET_OK)
        return bnet_as_tokenizer(status, err);
    if (!found || (pre.n == 7 && memcmp(pre.data, "default", 7) == 0)) {
        *kind = pre_from_vocabulary(t, g, found, log);
        return BITNET_OK;
    }
    for (size_t i = 0; i < BNET_COUNT(pre_rows); i++)
        if (strlen(pre_rows[i].name) == pre.n && memcmp(pre_rows[i].name, pre.data, pre.n) == 0) {
            *kind = pre_rows[i].kind;
            return BITNET_OK;
        }
    return unknown_pre(g, pre, err);
}

/* A merge is found by the texts it joins. The file separates them by the first space that is not
 * the first byte; returns the bytes before it, 0 if there is none or nothing behind it. */
static size_t left_of_merge(bnet_span s)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu;
    size_t n = BNET_MIN(s.n, (size_t)8);
    if (s.n < 3)
        return 0;
    /* the first 8 bytes, filled up with zeros; a text lies behind its length in the file */
    uint64_t x = bnet_u64(s.data + n - 8) >> 8 * (8 - n) ^ 0x2020202020202020u;
    uint64_t spaces = ~(((x & low) + low) | x | low) & ~(uint64_t)0xff; /* top bit of each */
    size_t at = (size_t)__builtin_ctzll(spaces | (uint64_t)1 << 63) / 8;
    if (!spaces) {
        const char *far = s.n < 10 ? NULL : memchr(s.data + 8, ' ', s.n - 9);
        at = far ? (size_t)(far - s.data) : 0;
    }
    return at + 1 < s.n ? at : 0;
}

static bnet_fill fill_merge(const void *owner, bnet_hash_key key, size_t i, uint64_t *hash)
{
    const bnet_tokenizer *t = owner;
    bnet_span s = bnet_text_at(&t->merges, i);
    size_t n_left = left_of_merge(s);
    if (!n_left)
        return BNET_FILL_BAD;
    *hash = bnet_hash_pair(key, s.data, n_left, s.data + n_left + 1, s.n - n_left - 1, true);
    return BNET_FILL_PUT;
}

static bitnet_status index_merges(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    size_t bad;
    char text[64];
    bitnet_status status = bnet_index_open(&t->by_merge, &t->merges, fill_merge, t, &bad, err);
    if (status != BITNET_OK || bad == t->merges.n)
        return status;
    bnet_span s = bnet_text_at(&t->merges, bad);
    return bnet_fail(err, BITNET_TOKENIZER, "%s: %s[%zu] is \"%s\", expected \"left right\"",
                     bnet_gguf_path(g), BNET_KEY_MERGES, bad,
                     bnet_quote(s.data, s.n, text, sizeof text));
}

static bitnet_status read_merges(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    const bnet_gguf_kv *kv;
    bitnet_status status = bnet_gguf_array(g, BNET_KEY_MERGES, BNET_GGUF_STRING, &kv, err);
    if (status != BITNET_OK)
        return bnet_as_tokenizer(status, err);
    if (!kv || kv->count >= UINT32_MAX)
        return bnet_fail(err, BITNET_TOKENIZER,
                         "%s: key %s is %s: a byte-level BPE vocabulary needs it",
                         bnet_gguf_path(g), BNET_KEY_MERGES, kv ? "too long" : "missing");
    status = bnet_texts_open(&t->merges, g, kv, err);
    return status == BITNET_OK ? index_merges(t, g, err) : status;
}

static bitnet_status find_bytes(bnet_tokenizer *t, const bnet_gguf *g, bitnet_error *err)
{
    for (int b = 0; b < 256; b++) {
        uint32_t id;
        t->byte_id[b] = t->unknown;
        if (bnet_index_get(&t->by_text, &t->tokens, t->byte_char[b], t->byte_char_n[b], false, &id))
            t->byte_id[b] = (int32_t)id;
        if (t->byte_id[b] < 0)
            return bnet_fail(err, BITNET_TOKENIZER,
                             "%s: %s has no token for the byte 0x%02x (\"%.*s\"): a byte-level "
                             "vocabulary has all 256, this one has %zu tokens",
                             bnet_gguf_path(g), BNET_KEY_TOKENS, (unsigned)b, t->byte_char_n[b],
                             t->byte_char[b], t->tokens.n);
    }
    return BITNET_OK;
}

bitnet_status bnet_bpe_open(bnet_tokenizer *t, const bnet_gguf *g, const bnet_log *log,
                            bitnet_error *err)
{
    bnet_split_kind kind = BNET_SPLIT_GPT2;
    bitnet_status status = choose_splitter(t, g, log, &kind, err);
    if (status == BITNET_OK)
        status = find_bytes(t, g, err);
    if (status == BITNET_OK)
        status = read_merges(t, g, err);
    if (status == BITNET_OK)
        status = bnet_splitter_open(kind, &t->splitter, err);
    if (status != BITNET_OK)
        return status;
    t->ignore_merges = t->adds_bos = kind == BNET_SPLIT_LLAMA3;
    t->name = kind == BNET_SPLIT_LLAMA3 ? "bpe/llama-3" : "bpe/gpt-2";
    return BITNET_OK;
}

/* ---- encoding ---- */

static bool find_merge(const void *owner, const char *left, size_t n_left, size_t n_right,
                       uint32_t *rank)
{
    const bnet_tokenizer *t = owner;
    const char *right = left + n_left;
    if (n_left + 1 + n_right > t->merges.longest ||
        !bnet_index_ends(&t->by_merge, left[0], right[n_right - 1]))
        return false;
    uint64_t hash = bnet_hash_pair(t->by_merge.key, left, n_left, right, n_right, true), at = hash;
    for (int64_t i; (i = bnet_index_next(&t->by_merge, hash, &at)) >= 0;) {
        bnet_span s = bnet_text_at(&t->merges, (size_t)i);
        if (s.n == n_left + 1 + n_right && s.data[n_left] == ' ' &&
            memcmp(s.data, left, n_left) == 0 && memcmp(s.data + n_left + 1, right, n_right) == 0) {
            *rank = (uint32_t)i;
            return true;
        }
    }
    return false;
}

/* Spells the piece in the vocabulary's alphabet, into s->text. */
static bool spell(const bnet_tokenizer *t, const char *piece, size_t n, bnet_scratch *s)
{
    if (!bnet_grow(&s->text.data, &s->text.cap, BNET_ROOM + 2 * n, 1))
        return false;
    char *out = s->text.data + BNET_ROOM;
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)piece[i];
        memcpy(out, t->byte_char[b], t->byte_char_n[b]);
        out += t->byte_char_n[b];
    }
    s->text.n = (size_t)(out - s->text.data);
    return true;
}

/* A symbol that is no token comes byte by byte; `piece` is where its first byte lies in the
 * original. */
static bool emit_symbol(const bnet_tokenizer *t, const bnet_scratch *s, const bnet_symbol *symbol,
                        const char **piece, bnet_ids *out)
{
    const char *text = s->text.data + symbol->at;
    uint32_t id;
    bool whole = bnet_index_get(&t->by_text, &t->tokens, text, symbol->n, true, &id);
    if (whole && !bnet_ids_push(out, (int32_t)id))
        return false;
    for (size_t i = 0; i < symbol->n; (*piece)++) {
        unsigned char b = (unsigned char)**piece;
        if (!whole && !bnet_ids_push(out, t->byte_id[b]))
            return false;
        i += t->byte_char_n[b];
    }
    return true;
}

static bool encode_piece(const bnet_tokenizer *t, const char *piece, size_t n, bnet_scratch *s,
                         bnet_ids *out)
{
    uint32_t id;
    if (n == 1)
        return bnet_ids_push(out, t->byte_id[(unsigned char)*piece]);
    if (!spell(t, piece, n, s))
        return false;
    if (t->ignore_merges && s->text.n - BNET_ROOM <= t->tokens.longest &&
        bnet_index_get(&t->by_text, &t->tokens, s->text.data + BNET_ROOM, s->text.n - BNET_ROOM,
                       true, &id))
        return bnet_ids_push(out, (int32_t)id);
    s->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!bnet_symbol_add(s, t->byte_char_n[(unsigned char)piece[i]]))
            return false;
    if (!bnet_merge(s, find_merge, t))
        return false;
    for (uint32_t i = 0; i != BNET_NO_SYMBOL; i = s->symbols[i].next)
        if (!bnet_scratch_go_on(s, 1) || !emit_symbol(t, s, &s->symbols[i], &piece, out))
            return false;
    return true;
}

typedef struct encoder {
    const bnet_tokenizer *t;
    bnet_scratch *scratch;
    bnet_ids *out;
} encoder;

static bitnet_status on_piece(void *user, const char *piece, size_t n, bitnet_error *err)
{
    encoder *e = user;
    if (!bnet_scratch_go_on(e->scratch, n ? n : BNET_ASK_EVERY) ||
        (n && !encode_piece(e->t, piece, n, e->scratch, e->out)))
        return bnet_scratch_fail(e->scratch, err);
    return BITNET_OK;
}

bitnet_status bnet_bpe_encode(const bnet_tokenizer *t, const char *text, size_t n, bnet_scratch *s,
                              bnet_ids *out, bitnet_error *err)
{
    encoder e = {t, s, out};
    return bnet_split_text(t->splitter, text, n, on_piece, &e, err);
}
