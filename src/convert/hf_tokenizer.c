/* hf_tokenizer.c - vocabulary, added tokens and merges of a tokenizer.json. */
#include "convert/hf_tokenizer.h"

#include <stdio.h>

/* The id of one token: below the size of the embedding. -1: refused. */
static int64_t check_id(bnet_hf_tok *t, const char *key, const char *text, const json_t *v)
{
    char quoted[96];
    int64_t id = json_integer_value(v);
    bnet_quote(text, strlen(text), quoted, sizeof quoted);
    if (!text[0])
        bnet_json_fail(&t->at, key, "a token has no text");
    else if (!v || !json_is_integer(v))
        bnet_json_fail(&t->at, key, "token \"%s\": id is %s; an integer was expected", quoted,
                       v ? bnet_json_kind(v) : "missing");
    else if (id < 0 || id >= (int64_t)t->v->n_tokens)
        bnet_json_fail(&t->at, key, "token \"%s\": id %lld is outside the embedding's %zu rows",
                       quoted, (long long)id, t->v->n_tokens);
    return t->at.status == BITNET_OK ? id : -1;
}

/* Puts a text at its id; the same text may come again for the same id (vocab, then added_tokens).
 */
static void put_token(bnet_hf_tok *t, const char *key, const char *text, const json_t *at,
                      bnet_token_type type)
{
    char quoted[96];
    bool existed = false;
    uint32_t other = 0;
    size_t n = strlen(text);
    int64_t id = check_id(t, key, text, at);
    if (id < 0)
        return;
    bnet_vocab_token *slot = &t->v->tokens[id];
    if (!bnet_strmap_put(&t->by_text, text, n, (uint32_t)id, &existed))
        bnet_json_no_memory(&t->at);
    bnet_quote(text, n, quoted, sizeof quoted);
    if (existed && bnet_strmap_get(&t->by_text, text, n, &other) && other != id)
        bnet_json_fail(&t->at, key, "token \"%s\" has two ids, %u and %lld", quoted, other,
                       (long long)id);
    if (!existed && slot->type != BNET_TOKEN_ABSENT)
        bnet_json_fail(&t->at, key, "id %lld belongs to \"%s\" and to another token", (long long)id,
                       quoted);
    if (!existed && !bnet_vocab_store(t->v, text, n, &slot->text))
        bnet_json_no_memory(&t->at);
    slot->type = type;
}

/* "<0x41>" in a SentencePiece vocabulary stands for a byte. */
static bool is_byte_token(const char *s)
{
    static const char digits[] = "0123456789ABCDEF";
    return strlen(s) == 6 && memcmp(s, "<0x", 3) == 0 && strchr(digits, s[3]) &&
           strchr(digits, s[4]) && s[5] == '>';
}

static void read_vocab(bnet_hf_tok *t)
{
    json_t *vocab = bnet_json_object(t->model, &t->at, "vocab"), *v;
    const char *text;
    if (!vocab || json_object_size(vocab) == 0)
        bnet_json_fail(&t->at, "vocab", vocab ? "is empty" : "is missing");
    json_object_foreach(vocab, text, v)
    {
        bool byte = !t->byte_level && is_byte_token(text);
        put_token(t, "vocab", text, v, byte ? BNET_TOKEN_BYTE : BNET_TOKEN_NORMAL);
        if (t->at.status != BITNET_OK)
            return;
    }
}

/* Such a token swallows the blanks beside it, which a GGUF tokenizer cannot express. */
static void note_strip(bnet_hf_tok *t, const json_t *token, const char *content)
{
    static const char *const keys[] = {"lstrip", "rstrip"};
    char quoted[64];
    for (size_t i = 0; i < BNET_COUNT(keys); i++)
        if (bnet_json_bool(token, &t->at, keys[i], false))
            bnet_logf(t->log, BITNET_LOG_WARN, "convert",
                      "%s: added token \"%s\": %s true is ignored; blanks beside it stay",
                      t->at.file, bnet_quote(content, strlen(content), quoted, sizeof quoted),
                      keys[i]);
}

static void read_added_token(bnet_hf_tok *t, const json_t *token)
{
    if (!json_is_object(token))
        bnet_json_fail(&t->at, "added_tokens", "holds %s; objects were expected",
                       bnet_json_kind(token));
    t->at.section = "added_tokens.";
    const char *content = bnet_json_string(token, &t->at, "content", NULL);
    if (!content)
        bnet_json_fail(&t->at, "content", "is missing");
    bool special = bnet_json_bool(token, &t->at, "special", false);
    t->at.section = "";
    if (t->at.status == BITNET_OK)
        put_token(t, "added_tokens", content, json_object_get(token, "id"),
                  special ? BNET_TOKEN_CONTROL : BNET_TOKEN_USER);
    t->at.section = "added_tokens.";
    note_strip(t, token, content);
    t->at.section = "";
}

static void read_added(bnet_hf_tok *t)
{
    const json_t *added = bnet_json_array(t->root, &t->at, "added_tokens");
    for (size_t i = 0; t->at.status == BITNET_OK && i < json_array_size(added); i++)
        read_added_token(t, json_array_get(added, i));
}

/* The two halves of a merge: "left right", or ["left", "right"]. */
static void merge_halves(bnet_hf_tok *t, size_t i, const json_t *m, bnet_span half[2])
{
    char quoted[96];
    if (json_is_array(m) && json_array_size(m) == 2 && json_is_string(json_array_get(m, 0)) &&
        json_is_string(json_array_get(m, 1))) {
        for (size_t k = 0; k < 2; k++)
            half[k] = (bnet_span){json_string_value(json_array_get(m, k)),
                                  json_string_length(json_array_get(m, k))};
        return;
    }
    const char *s = json_string_value(m), *space = s ? strchr(s, ' ') : NULL;
    if (!s)
        bnet_json_fail(&t->at, "merges",
                       "merge %zu is neither \"left right\" nor a pair of strings", i);
    else if (!space || strchr(space + 1, ' '))
        bnet_json_fail(&t->at, "merges", "merge %zu \"%s\": exactly one space was expected", i,
                       bnet_quote(s, strlen(s), quoted, sizeof quoted));
    else {
        half[0] = (bnet_span){s, (size_t)(space - s)};
        half[1] = (bnet_span){space + 1, strlen(space + 1)};
    }
}

/* Both halves and their union must be tokens. Returns the union's id. */
static uint32_t check_merge(bnet_hf_tok *t, size_t i, const bnet_span half[2], bnet_str *joined)
{
    char quoted[96];
    uint32_t id = 0;
    joined->n = 0;
    bnet_str_add(joined, half[0].data, half[0].n);
    bnet_str_add(joined, half[1].data, half[1].n);
    if (joined->failed) {
        bnet_json_no_memory(&t->at);
        return 0;
    }
    bnet_span parts[] = {half[0], half[1], {joined->data, joined->n}};
    for (size_t k = 0; k < BNET_COUNT(parts); k++)
        if (!bnet_strmap_get(&t->by_text, parts[k].data, parts[k].n, &id))
            bnet_json_fail(&t->at, "merges", "merge %zu: \"%s\" is not in the vocabulary", i,
                           bnet_quote(parts[k].data, parts[k].n, quoted, sizeof quoted));
    return id;
}

static bool store_merge(bnet_vocab *v, const bnet_span half[2])
{
    bnet_vocab_text text = {v->text.n, (uint32_t)(half[0].n + half[1].n + 1)};
    bnet_str_add(&v->text, half[0].data, half[0].n);
    bnet_str_putc(&v->text, ' ');
    bnet_str_add(&v->text, half[1].data, half[1].n);
    if (v->text.failed ||
        !bnet_grow(&v->merges, &v->cap_merges, v->n_merges + 1, sizeof *v->merges))
        return false;
    v->merges[v->n_merges++] = text;
    return true;
}

/* Byte-level: the merges travel. SentencePiece: the first rank that makes a token becomes its
 * score, so that the highest score is the lowest rank. */
static void read_merge(bnet_hf_tok *t, size_t i, const json_t *m, bnet_str *joined)
{
    bnet_span half[2];
    merge_halves(t, i, m, half);
    uint32_t id = t->at.status == BITNET_OK ? check_merge(t, i, half, joined) : 0;
    if (t->at.status != BITNET_OK)
        return;
    if (t->byte_level && !store_merge(t->v, half))
        bnet_json_no_memory(&t->at);
    if (!t->byte_level && t->v->tokens[id].score == 0)
        t->v->tokens[id].score = -(float)(i + 1);
}

/* SentencePiece tokens that no merge makes (single characters) rank behind all others. */
static void score_rest(bnet_vocab *v, size_t n_merges)
{
    for (size_t i = 0; i < v->n_tokens; i++)
        if (v->tokens[i].type == BNET_TOKEN_NORMAL && v->tokens[i].score == 0)
            v->tokens[i].score = -(float)(n_merges + 1 + i);
}

static void read_merges(bnet_hf_tok *t)
{
    bnet_str joined = {0};
    const json_t *merges = bnet_json_array(t->model, &t->at, "merges");
    if (!merges)
        bnet_json_fail(&t->at, "merges", "is missing");
    for (size_t i = 0; t->at.status == BITNET_OK && i < json_array_size(merges); i++)
        read_merge(t, i, json_array_get(merges, i), &joined);
    bnet_str_free(&joined);
    if (!t->byte_level)
        score_rest(t->v, json_array_size(merges));
}

static void read_unknown(bnet_hf_tok *t)
{
    uint32_t id = 0;
    const char *unk = bnet_json_string(t->model, &t->at, "unk_token", NULL);
    if (!unk || t->byte_level)
        return;
    if (!bnet_strmap_get(&t->by_text, unk, strlen(unk), &id)) {
        bnet_json_refuse(&t->at, "unk_token", unk, "is not in the vocabulary");
        return;
    }
    t->v->unk = (int32_t)id;
    t->v->tokens[id].type = BNET_TOKEN_UNKNOWN;
}

static void read_model(bnet_hf_tok *t)
{
    char quoted[64];
    t->model = bnet_json_object(t->root, &t->at, "model");
    if (!t->model)
        bnet_json_fail(&t->at, "model", "is missing");
    /* files before 2020 name no type */
    const char *type = bnet_json_string(t->model, &t->at, "type", "BPE");
    if (strcmp(type, "BPE") != 0)
        bnet_json_fail(&t->at, "type", "tokenizer model \"%s\" is not supported; BPE is",
                       bnet_quote(type, strlen(type), quoted, sizeof quoted));
}

static void read_all(bnet_hf_tok *t)
{
    static void (*const steps[])(bnet_hf_tok *) = {
        read_model,  bnet_hf_read_splitter, read_vocab,           read_added,
        read_merges, read_unknown,          bnet_hf_read_template};
    for (size_t i = 0; t->at.status == BITNET_OK && i < BNET_COUNT(steps); i++)
        steps[i](t);
}

bitnet_status bnet_hf_tokenizer_parse(const char *data, size_t n, const char *path, size_t n_vocab,
                                      const bnet_log *log, bnet_vocab *out, bitnet_error *err)
{
    bnet_vocab v = {0};
    bnet_hf_tok t = {.at = {path, "", BITNET_TOKENIZER, err, BITNET_OK}, .log = log, .v = &v};
    json_t *root = bnet_json_parse(data, n, "document", &t.at);
    t.root = root;
    if (root && (!bnet_vocab_init(&v, n_vocab) || !bnet_strmap_init(&t.by_text, n_vocab)))
        bnet_json_no_memory(&t.at);
    read_all(&t);
    bnet_strmap_free(&t.by_text);
    json_decref(root);
    if (t.at.status != BITNET_OK)
        bnet_vocab_free(&v);
    *out = v;
    return t.at.status;
}
