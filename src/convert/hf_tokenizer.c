/* hf_tokenizer.c - vocabulary, added tokens and merges of a tokenizer.json. */
#include "convert/hf_tokenizer.h"

#include <stdio.h>

/* A merge costs some forty bytes on its way; files that are used have half a million. */
#define MAX_MERGES ((size_t)1 << 21)

/* Appends the text of the key or string that r stands at to the store. n 0: nothing was appended,
 * it is empty or refused. */
static bnet_vocab_text take_text(bnet_hf_tok *t, const char *key, const bnet_json_reader *r)
{
    bnet_str *s = &t->v->text;
    bnet_vocab_text text = {(uint32_t)s->n, 0};
    bnet_json_text(r, s);
    text.n = (uint32_t)(s->n - text.at);
    if (s->failed)
        bnet_json_no_memory(&t->at);
    else if (text.n && memchr(s->data + text.at, '\0', text.n))
        bnet_json_fail(&t->at, key, "a text holds \\u0000");
    if (t->at.status != BITNET_OK)
        text.n = 0;
    return text;
}

static void drop_text(bnet_hf_tok *t, bnet_vocab_text text)
{
    t->v->text.n = text.at;
}

/* The id of one token, which r stands at (END: there is none): below the size of the embedding. -1:
 * refused. */
static int64_t check_id(bnet_hf_tok *t, const char *key, const char *quoted,
                        const bnet_json_reader *r)
{
    int64_t id = -1;
    if (r->event != BNET_JSON_INTEGER)
        bnet_json_fail(&t->at, key, "token \"%s\": id is %s; an integer was expected", quoted,
                       r->event == BNET_JSON_END ? "missing" : bnet_json_event_name(r->event));
    else if (!bnet_json_int64(r, &id) || id < 0 || id >= (int64_t)t->v->n_tokens)
        bnet_json_fail(&t->at, key, "token \"%s\": id %.*s is outside the embedding's %zu rows",
                       quoted, (int)BNET_MIN(r->raw.n, 24), r->raw.data, t->v->n_tokens);
    return t->at.status == BITNET_OK ? id : -1;
}

/* Puts a text, the last of the store, at its id; *existed: it has come before for the same id. */
static void put_token(bnet_hf_tok *t, const char *key, bnet_vocab_text text,
                      const bnet_json_reader *at, bnet_token_type type, bool *existed)
{
    char quoted[96];
    uint32_t other = 0;
    const char *bytes = bnet_vocab_bytes(t->v, text);
    bnet_quote(bytes, text.n, quoted, sizeof quoted);
    int64_t id = check_id(t, key, quoted, at);
    if (id < 0)
        return;
    bnet_vocab_token *slot = &t->v->tokens[id];
    if (!bnet_strmap_put(&t->by_text, bytes, text.n, (uint32_t)id, existed))
        bnet_json_no_memory(&t->at);
    if (*existed && bnet_strmap_get(&t->by_text, bytes, text.n, &other) && other != id)
        bnet_json_fail(&t->at, key, "token \"%s\" has two ids, %u and %lld", quoted, other,
                       (long long)id);
    if (!*existed && slot->type != BNET_TOKEN_ABSENT)
        bnet_json_fail(&t->at, key, "id %lld belongs to \"%s\" and to another token", (long long)id,
                       quoted);
    if (*existed)
        drop_text(t, text);
    else
        slot->text = text;
    slot->type = type;
}

/* "<0x41>" in a SentencePiece vocabulary stands for a byte. */
static bool is_byte_token(const char *s)
{
    static const char digits[] = "0123456789ABCDEF";
    return strlen(s) == 6 && memcmp(s, "<0x", 3) == 0 && strchr(digits, s[3]) &&
           strchr(digits, s[4]) && s[5] == '>';
}

static void read_vocab_entry(bnet_hf_tok *t, bnet_json_reader *r)
{
    char quoted[96];
    bool existed = false;
    bnet_vocab_text text = take_text(t, "vocab", r);
    const char *bytes = bnet_vocab_bytes(t->v, text);
    bnet_json_next(r);
    if (text.n == 0) {
        bnet_json_fail(&t->at, "vocab", "a token has no text");
        return;
    }
    bool byte = !t->byte_level && is_byte_token(bytes);
    uint32_t before;
    if (bnet_strmap_get(&t->by_text, bytes, text.n, &before)) {
        bnet_json_fail(&t->at, "vocab", "duplicate object key \"%s\"",
                       bnet_quote(bytes, text.n, quoted, sizeof quoted));
        return;
    }
    put_token(t, "vocab", text, r, byte ? BNET_TOKEN_BYTE : BNET_TOKEN_NORMAL, &existed);
}

static void read_vocab(bnet_hf_tok *t)
{
    bnet_json_reader r = t->vocab;
    if (r.event == BNET_JSON_END)
        bnet_json_fail(&t->at, "vocab", "is missing");
    else if (r.event != BNET_JSON_OBJECT)
        bnet_json_fail(&t->at, "vocab", "is %s; an object was expected",
                       bnet_json_event_name(r.event));
    while (t->at.status == BITNET_OK && bnet_json_next(&r) == BNET_JSON_KEY)
        read_vocab_entry(t, &r);
    if (t->by_text.n_used == 0)
        bnet_json_fail(&t->at, "vocab", "is empty");
}

/* ---- added tokens ---- */

enum { CONTENT, ID, SPECIAL, LSTRIP, RSTRIP, N_MEMBERS };
static const char *const member_names[N_MEMBERS] = {"content", "id", "special", "lstrip", "rstrip"};

/* The members of one added token that are read; the event of an absent one is END. */
static void read_members(bnet_hf_tok *t, bnet_json_reader *r, bnet_json_reader members[N_MEMBERS])
{
    while (t->at.status == BITNET_OK && bnet_json_next(r) == BNET_JSON_KEY) {
        int k = 0;
        while (k < N_MEMBERS && !bnet_json_text_is(r, member_names[k]))
            k++;
        bnet_json_next(r);
        if (k < N_MEMBERS && members[k].event != BNET_JSON_END)
            bnet_json_fail(&t->at, member_names[k], "duplicate object key");
        if (k < N_MEMBERS)
            members[k] = *r;
        bnet_json_skip(r);
    }
    for (int k = 0; k < N_MEMBERS; k++)
        if (members[k].event == BNET_JSON_NULL)
            members[k].event = BNET_JSON_END;
}

static bool read_flag(bnet_hf_tok *t, const bnet_json_reader *members, int k)
{
    bnet_json_event e = members[k].event;
    if (e != BNET_JSON_TRUE && e != BNET_JSON_FALSE && e != BNET_JSON_END)
        bnet_json_fail(&t->at, member_names[k], "is %s; true or false was expected",
                       bnet_json_event_name(e));
    return e == BNET_JSON_TRUE;
}

/* Such a token swallows the blanks beside it, which a GGUF tokenizer cannot express. */
static void note_strip(bnet_hf_tok *t, const bnet_json_reader *members, const char *quoted)
{
    for (int k = LSTRIP; k <= RSTRIP; k++)
        if (read_flag(t, members, k))
            bnet_logf(t->log, BITNET_LOG_WARN, "convert",
                      "%s: added token \"%s\": %s true is ignored; blanks beside it stay",
                      t->at.file, quoted, member_names[k]);
}

static void put_added(bnet_hf_tok *t, const bnet_json_reader *members, bool special)
{
    char quoted[64];
    bool existed = false;
    t->at.section = "";
    bnet_vocab_text text = take_text(t, "added_tokens", &members[CONTENT]);
    if (text.n == 0)
        bnet_json_fail(&t->at, "added_tokens", "a token has no text");
    if (t->at.status != BITNET_OK)
        return;
    bnet_quote(bnet_vocab_bytes(t->v, text), text.n, quoted, sizeof quoted);
    put_token(t, "added_tokens", text, &members[ID], special ? BNET_TOKEN_CONTROL : BNET_TOKEN_USER,
              &existed);
    t->at.section = "added_tokens.";
    note_strip(t, members, quoted);
}

static void read_added_token(bnet_hf_tok *t, bnet_json_reader *r)
{
    bnet_json_reader members[N_MEMBERS];
    for (int k = 0; k < N_MEMBERS; k++)
        members[k].event = BNET_JSON_END;
    if (r->event != BNET_JSON_OBJECT)
        bnet_json_fail(&t->at, "added_tokens", "holds %s; objects were expected",
                       bnet_json_event_name(r->event));
    t->at.section = "added_tokens.";
    read_members(t, r, members);
    bnet_json_event e = members[CONTENT].event;
    if (e == BNET_JSON_END)
        bnet_json_fail(&t->at, "content", "is missing");
    else if (e != BNET_JSON_STRING)
        bnet_json_fail(&t->at, "content", "is %s; a string was expected", bnet_json_event_name(e));
    bool special = read_flag(t, members, SPECIAL);
    if (t->at.status == BITNET_OK)
        put_added(t, members, special);
    t->at.section = "";
}

static void read_added(bnet_hf_tok *t)
{
    bnet_json_reader r = t->added;
    if (r.event == BNET_JSON_END)
        return;
    if (r.event != BNET_JSON_ARRAY)
        bnet_json_fail(&t->at, "added_tokens", "is %s; an array was expected",
                       bnet_json_event_name(r.event));
    while (t->at.status == BITNET_OK && bnet_json_next(&r) != BNET_JSON_ARRAY_END)
        read_added_token(t, &r);
}

/* ---- merges ---- */

/* Stores ["left", "right"] as "left right". */
static bool take_pair(bnet_hf_tok *t, bnet_json_reader *r, bnet_span half[2], bnet_vocab_text *all)
{
    size_t n = 0;
    while (bnet_json_next(r) == BNET_JSON_STRING && n < 2) {
        bnet_vocab_text text = take_text(t, "merges", r);
        half[n++] = (bnet_span){bnet_vocab_bytes(t->v, text), text.n};
        if (n == 1)
            bnet_str_putc(&t->v->text, ' ');
    }
    *all = (bnet_vocab_text){all->at, (uint32_t)(t->v->text.n - all->at)};
    return n == 2 && r->event == BNET_JSON_ARRAY_END;
}

/* The i-th merge, which r stands at: "left right" or ["left", "right"], as the former in the store.
 */
static bnet_vocab_text take_merge(bnet_hf_tok *t, size_t i, bnet_json_reader *r, bnet_span half[2])
{
    char quoted[96];
    bnet_vocab_text all = {(uint32_t)t->v->text.n, 0};
    if (r->event == BNET_JSON_ARRAY && take_pair(t, r, half, &all))
        return all;
    if (r->event != BNET_JSON_STRING) {
        bnet_json_fail(&t->at, "merges",
                       "merge %zu is neither \"left right\" nor a pair of strings", i);
        return all;
    }
    all = take_text(t, "merges", r);
    const char *s = bnet_vocab_bytes(t->v, all), *space = all.n ? memchr(s, ' ', all.n) : NULL;
    const char *end = s + all.n;
    if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1)))
        bnet_json_fail(&t->at, "merges", "merge %zu \"%s\": exactly one space was expected", i,
                       bnet_quote(s, all.n, quoted, sizeof quoted));
    else {
        half[0] = (bnet_span){s, (size_t)(space - s)};
        half[1] = (bnet_span){space + 1, (size_t)(end - space - 1)};
    }
    return all;
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

static void store_merge(bnet_hf_tok *t, bnet_vocab_text text)
{
    bnet_vocab *v = t->v;
    if (!bnet_grow(&v->merges, &v->cap_merges, v->n_merges + 1, sizeof *v->merges))
        bnet_json_no_memory(&t->at);
    else
        v->merges[v->n_merges++] = text;
}

/* Byte-level: the merges travel. SentencePiece: the first rank that makes a token becomes its
 * score, so that the highest score is the lowest rank. */
static void read_merge(bnet_hf_tok *t, size_t i, bnet_json_reader *r, bnet_str *joined)
{
    bnet_span half[2] = {{"", 0}, {"", 0}};
    if (i >= MAX_MERGES)
        bnet_json_fail(&t->at, "merges", "has more than %zu merges", MAX_MERGES);
    bnet_vocab_text text = take_merge(t, i, r, half);
    uint32_t id = t->at.status == BITNET_OK ? check_merge(t, i, half, joined) : 0;
    if (t->at.status != BITNET_OK)
        return;
    if (t->byte_level)
        store_merge(t, text);
    else
        drop_text(t, text);
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
    bnet_json_reader r = t->merges;
    size_t n = 0;
    if (r.event == BNET_JSON_END)
        bnet_json_fail(&t->at, "merges", "is missing");
    else if (r.event != BNET_JSON_ARRAY)
        bnet_json_fail(&t->at, "merges", "is %s; an array was expected",
                       bnet_json_event_name(r.event));
    while (t->at.status == BITNET_OK && bnet_json_next(&r) != BNET_JSON_ARRAY_END)
        read_merge(t, n++, &r, &joined);
    bnet_str_free(&joined);
    if (!t->byte_level)
        score_rest(t->v, n);
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

/* Room for everything: a text in the store is never longer than in the file, where a token takes
 * five bytes at least ("a":0). */
static bool make_room(bnet_hf_tok *t, size_t n_text, size_t n_vocab)
{
    return bnet_vocab_init(t->v, n_vocab) && bnet_str_reserve(&t->v->text, n_text) &&
           bnet_strmap_init(&t->by_text, BNET_MIN(n_vocab, n_text / 5));
}

bitnet_status bnet_hf_tokenizer_parse(const char *data, size_t n, const char *path, size_t n_vocab,
                                      const bnet_log *log, bnet_vocab *out, bitnet_error *err)
{
    bnet_vocab v = {0};
    bnet_hf_tok t = {.at = {path, "", BITNET_TOKENIZER, err, BITNET_OK}, .log = log, .v = &v};
    bnet_hf_read_sections(&t, data, n);
    if (t.at.status == BITNET_OK && !make_room(&t, n, n_vocab))
        bnet_json_no_memory(&t.at);
    read_all(&t);
    bnet_strmap_free(&t.by_text);
    json_decref(t.root);
    if (t.at.status != BITNET_OK)
        bnet_vocab_free(&v);
    *out = v;
    return t.at.status;
}
