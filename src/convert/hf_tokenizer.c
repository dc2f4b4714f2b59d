/* hf_tokenizer.c - vocabulary, added tokens and merges of a tokenizer.json. */
#include "convert/hf_tokenizer.h"

#include <stdio.h>

/* The id of one token: an unused place below the size of the embedding. */
static bitnet_status check_id(const bnet_hf_tok *t, const char *key, const char *text,
                              const json_t *v, int64_t *out)
{
    char quoted[96];
    bnet_quote(text, strlen(text), quoted, sizeof quoted);
    if (!text[0])
        return bnet_json_fail(&t->at, key, "a token has no text");
    if (!v || !json_is_integer(v))
        return bnet_json_fail(&t->at, key, "token \"%s\": id is %s; an integer was expected",
                              quoted, v ? bnet_json_kind(v) : "missing");
    int64_t id = json_integer_value(v);
    if (id < 0 || id >= (int64_t)t->v->n_tokens)
        return bnet_json_fail(&t->at, key,
                              "token \"%s\": id %lld is outside the embedding's %zu rows", quoted,
                              (long long)id, t->v->n_tokens);
    *out = id;
    return BITNET_OK;
}

/* Puts a text at its id; the same text may come again for the same id (vocab, then added_tokens).
 */
static bitnet_status put_token(bnet_hf_tok *t, const char *key, const char *text, int64_t id,
                               bnet_token_type type)
{
    char quoted[96];
    bool existed = false;
    uint32_t other = 0;
    size_t n = strlen(text);
    bnet_vocab_token *slot = &t->v->tokens[id];
    if (!bnet_strmap_put(&t->by_text, text, n, (uint32_t)id, &existed))
        return bnet_no_memory(t->at.err, t->at.file);
    bnet_quote(text, n, quoted, sizeof quoted);
    if (existed && bnet_strmap_get(&t->by_text, text, n, &other) && other != id)
        return bnet_json_fail(&t->at, key, "token \"%s\" has two ids, %u and %lld", quoted, other,
                              (long long)id);
    if (!existed && slot->type != BNET_TOKEN_ABSENT)
        return bnet_json_fail(&t->at, key, "id %lld belongs to \"%s\" and to another token",
                              (long long)id, quoted);
    if (!existed && !bnet_vocab_store(t->v, text, n, &slot->text))
        return bnet_no_memory(t->at.err, t->at.file);
    slot->type = type;
    return BITNET_OK;
}

/* "<0x41>" in a SentencePiece vocabulary stands for a byte. */
static bool is_byte_token(const char *s)
{
    static const char digits[] = "0123456789ABCDEF";
    return strlen(s) == 6 && memcmp(s, "<0x", 3) == 0 && strchr(digits, s[3]) &&
           strchr(digits, s[4]) && s[5] == '>';
}

static bitnet_status read_vocab(bnet_hf_tok *t)
{
    json_t *vocab = NULL, *v;
    const char *text;
    bitnet_status st = bnet_json_object(t->model, &t->at, "vocab", &vocab);
    if (st == BITNET_OK && (!vocab || json_object_size(vocab) == 0))
        st = bnet_json_fail(&t->at, "vocab", vocab ? "is empty" : "is missing");
    if (st != BITNET_OK)
        return st;
    json_object_foreach(vocab, text, v)
    {
        int64_t id = 0;
        bool byte = !t->byte_level && is_byte_token(text);
        st = check_id(t, "vocab", text, v, &id);
        if (st == BITNET_OK)
            st = put_token(t, "vocab", text, id, byte ? BNET_TOKEN_BYTE : BNET_TOKEN_NORMAL);
        if (st != BITNET_OK)
            return st;
    }
    return BITNET_OK;
}

/* Such a token swallows the blanks beside it, which a GGUF tokenizer cannot say. */
static bitnet_status note_strip(bnet_hf_tok *t, const json_t *token, const bnet_json_at *at,
                                const char *content)
{
    static const char *const keys[] = {"lstrip", "rstrip"};
    char quoted[64];
    for (size_t i = 0; i < BNET_COUNT(keys); i++) {
        bool on = false;
        bitnet_status st = bnet_json_bool(token, at, keys[i], &on);
        if (st != BITNET_OK)
            return st;
        if (on)
            bnet_logf(t->log, BITNET_LOG_WARN, "convert",
                      "%s: added token \"%s\": %s true is ignored; blanks beside it stay",
                      t->at.file, bnet_quote(content, strlen(content), quoted, sizeof quoted),
                      keys[i]);
    }
    return BITNET_OK;
}

static bitnet_status read_added_token(bnet_hf_tok *t, const json_t *token)
{
    const char *content = NULL;
    bool special = false;
    int64_t id = 0;
    if (!json_is_object(token))
        return bnet_json_fail(&t->at, "added_tokens", "holds %s; objects were expected",
                              bnet_json_kind(token));
    bnet_json_at at = t->at;
    at.section = "added_tokens.";
    bitnet_status st = bnet_json_string(token, &at, "content", &content);
    if (st == BITNET_OK && !content)
        st = bnet_json_fail(&at, "content", "is missing");
    if (st == BITNET_OK)
        st = bnet_json_bool(token, &at, "special", &special);
    if (st == BITNET_OK)
        st = check_id(t, "added_tokens", content, json_object_get(token, "id"), &id);
    if (st == BITNET_OK)
        st = put_token(t, "added_tokens", content, id,
                       special ? BNET_TOKEN_CONTROL : BNET_TOKEN_USER);
    return st == BITNET_OK ? note_strip(t, token, &at, content) : st;
}

static bitnet_status read_added(bnet_hf_tok *t)
{
    json_t *added = NULL;
    bitnet_status st = bnet_json_array(t->root, &t->at, "added_tokens", &added);
    for (size_t i = 0; st == BITNET_OK && i < json_array_size(added); i++)
        st = read_added_token(t, json_array_get(added, i));
    return st;
}

/* The two halves of a merge: "left right", or ["left", "right"]. */
static bitnet_status merge_halves(const bnet_hf_tok *t, size_t i, const json_t *m,
                                  bnet_span half[2])
{
    char quoted[96];
    if (json_is_array(m) && json_array_size(m) == 2 && json_is_string(json_array_get(m, 0)) &&
        json_is_string(json_array_get(m, 1))) {
        for (size_t k = 0; k < 2; k++)
            half[k] = (bnet_span){json_string_value(json_array_get(m, k)),
                                  json_string_length(json_array_get(m, k))};
        return BITNET_OK;
    }
    if (!json_is_string(m))
        return bnet_json_fail(&t->at, "merges",
                              "merge %zu is neither \"left right\" nor a pair of strings", i);
    const char *s = json_string_value(m), *space = strchr(s, ' ');
    if (!space || strchr(space + 1, ' '))
        return bnet_json_fail(&t->at, "merges", "merge %zu \"%s\": exactly one space was expected",
                              i, bnet_quote(s, strlen(s), quoted, sizeof quoted));
    half[0] = (bnet_span){s, (size_t)(space - s)};
    half[1] = (bnet_span){space + 1, strlen(space + 1)};
    return BITNET_OK;
}

/* Both halves and their union must be tokens. Leaves the union's id in *id. */
static bitnet_status check_merge(const bnet_hf_tok *t, size_t i, const bnet_span half[2],
                                 bnet_str *joined, uint32_t *id)
{
    char quoted[96];
    joined->n = 0;
    bnet_str_add(joined, half[0].data, half[0].n);
    bnet_str_add(joined, half[1].data, half[1].n);
    if (joined->failed)
        return bnet_no_memory(t->at.err, t->at.file);
    bnet_span whole = {joined->data, joined->n};
    const bnet_span *parts[] = {&half[0], &half[1], &whole};
    for (size_t k = 0; k < 3; k++) {
        if (!bnet_strmap_get(&t->by_text, parts[k]->data, parts[k]->n, id))
            return bnet_json_fail(&t->at, "merges", "merge %zu: \"%s\" is not in the vocabulary", i,
                                  bnet_quote(parts[k]->data, parts[k]->n, quoted, sizeof quoted));
    }
    return BITNET_OK;
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
static bitnet_status read_merge(bnet_hf_tok *t, size_t i, const json_t *m, bnet_str *joined)
{
    bnet_span half[2];
    uint32_t id = 0;
    bitnet_status st = merge_halves(t, i, m, half);
    if (st == BITNET_OK)
        st = check_merge(t, i, half, joined, &id);
    if (st != BITNET_OK)
        return st;
    if (t->byte_level)
        return store_merge(t->v, half) ? BITNET_OK : bnet_no_memory(t->at.err, t->at.file);
    if (t->v->tokens[id].score == 0)
        t->v->tokens[id].score = -(float)(i + 1);
    return BITNET_OK;
}

/* SentencePiece tokens that no merge makes (single characters) rank behind all others. */
static void score_rest(bnet_vocab *v, size_t n_merges)
{
    for (size_t i = 0; i < v->n_tokens; i++)
        if (v->tokens[i].type == BNET_TOKEN_NORMAL && v->tokens[i].score == 0)
            v->tokens[i].score = -(float)(n_merges + 1 + i);
}

static bitnet_status read_merges(bnet_hf_tok *t)
{
    json_t *merges = NULL;
    bnet_str joined = {0};
    bitnet_status st = bnet_json_array(t->model, &t->at, "merges", &merges);
    if (st == BITNET_OK && !merges)
        st = bnet_json_fail(&t->at, "merges", "is missing");
    for (size_t i = 0; st == BITNET_OK && i < json_array_size(merges); i++)
        st = read_merge(t, i, json_array_get(merges, i), &joined);
    bnet_str_free(&joined);
    if (st == BITNET_OK && !t->byte_level)
        score_rest(t->v, json_array_size(merges));
    return st;
}

static bitnet_status read_unknown(bnet_hf_tok *t)
{
    char quoted[96];
    const char *unk = NULL;
    uint32_t id = 0;
    bitnet_status st = bnet_json_string(t->model, &t->at, "unk_token", &unk);
    if (st != BITNET_OK || !unk || t->byte_level)
        return st;
    if (!bnet_strmap_get(&t->by_text, unk, strlen(unk), &id))
        return bnet_json_fail(&t->at, "unk_token", "\"%s\" is not in the vocabulary",
                              bnet_quote(unk, strlen(unk), quoted, sizeof quoted));
    t->v->unk = (int32_t)id;
    t->v->tokens[id].type = BNET_TOKEN_UNKNOWN;
    return BITNET_OK;
}

static bitnet_status read_model(bnet_hf_tok *t)
{
    json_t *model = NULL;
    const char *type = "BPE"; /* files before 2020 name no type */
    char quoted[64];
    bitnet_status st = bnet_json_object(t->root, &t->at, "model", &model);
    if (st == BITNET_OK && !model)
        st = bnet_json_fail(&t->at, "model", "is missing");
    if (st != BITNET_OK)
        return st;
    t->model = model;
    st = bnet_json_string(model, &t->at, "type", &type);
    if (st == BITNET_OK && strcmp(type, "BPE") != 0)
        st = bnet_json_fail(&t->at, "type", "tokenizer model \"%s\" is not supported; BPE is",
                            bnet_quote(type, strlen(type), quoted, sizeof quoted));
    return st;
}

static bitnet_status read_all(bnet_hf_tok *t)
{
    static bitnet_status (*const steps[])(bnet_hf_tok *) = {
        read_model,  bnet_hf_read_splitter, read_vocab,           read_added,
        read_merges, read_unknown,          bnet_hf_read_template};
    if (!json_is_object(t->root))
        return bnet_fail(t->at.err, t->at.kind, "%s: the document is %s; an object was expected",
                         t->at.file, bnet_json_kind(t->root));
    for (size_t i = 0; i < BNET_COUNT(steps); i++) {
        bitnet_status st = steps[i](t);
        if (st != BITNET_OK)
            return st;
    }
    return BITNET_OK;
}

bitnet_status bnet_hf_tokenizer_parse(const char *data, size_t n, const char *path, size_t n_vocab,
                                      const bnet_log *log, bnet_vocab *out, bitnet_error *err)
{
    json_t *root = NULL;
    bnet_vocab v;
    bnet_hf_tok t = {.at = {path, "", BITNET_TOKENIZER, err}, .log = log, .v = &v};
    *out = (bnet_vocab){0};
    bitnet_status st = bnet_json_parse(data, n, &t.at, &root);
    if (st != BITNET_OK)
        return st;
    t.root = root;
    bool ok = bnet_vocab_init(&v, n_vocab);
    ok = bnet_strmap_init(&t.by_text, n_vocab) && ok;
    st = ok ? read_all(&t) : bnet_no_memory(err, path);
    bnet_strmap_free(&t.by_text);
    json_decref(root);
    if (st == BITNET_OK)
        *out = v;
    else
        bnet_vocab_free(&v);
    return st;
}
