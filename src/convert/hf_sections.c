/* hf_sections.c - where the parts of a tokenizer.json are. The vocabulary, the merges and the added
 * tokens are many megabytes and are left in the text, to be pulled from it; the other parts that
 * are read are a few lines each and become a tree, whose size is bounded. */
#include "convert/hf_tokenizer.h"

#define MAX_PART   (1u << 20) /* bytes of one part that becomes a tree */
#define MAX_VALUES 16384u     /* values in it */

/* A member of an object that is looked for. */
typedef struct member {
    const char *key;
    bool tree;                /* it goes into the tree */
    bnet_json_reader *reader; /* else: stands at its value afterwards */
    bool seen;
} member;

/* Notes the value that r stands at in `tree`, if it is short enough, and passes over it. */
static void plant(bnet_hf_tok *t, bnet_json_reader *r, const char *key, json_t *tree)
{
    bnet_json_reader from = *r;
    size_t begin = from.event == BNET_JSON_STRING || from.event == BNET_JSON_INTEGER ||
                           from.event == BNET_JSON_REAL
                       ? (size_t)(from.raw.data - from.data) - (from.event == BNET_JSON_STRING)
                       : from.at;
    if (from.event == BNET_JSON_OBJECT || from.event == BNET_JSON_ARRAY)
        begin--;
    bnet_json_skip(r);
    size_t n_bytes = r->at - begin, n_values = r->n_values - from.n_values;
    if (from.event >= BNET_JSON_TRUE) {
        json_t *word =
            from.event == BNET_JSON_NULL ? json_null() : json_boolean(from.event == BNET_JSON_TRUE);
        if (json_object_set_new(tree, key, word) != 0)
            bnet_json_no_memory(&t->at);
        return;
    }
    if (n_bytes > MAX_PART || n_values > MAX_VALUES) {
        bnet_json_fail(&t->at, key, "has %zu bytes and %zu values; at most %u and %u are read",
                       n_bytes, n_values, MAX_PART, MAX_VALUES);
        return;
    }
    json_t *v = bnet_json_value((bnet_span){from.data + begin, n_bytes}, key, &t->at);
    if (v && json_object_set_new(tree, key, v) != 0)
        bnet_json_no_memory(&t->at);
}

/* r stands at the beginning of an object; passes over it and takes what is looked for. */
static void take_members(bnet_hf_tok *t, bnet_json_reader *r, member *members, size_t n,
                         json_t *tree)
{
    while (t->at.status == BITNET_OK && bnet_json_next(r) == BNET_JSON_KEY) {
        member *m = members;
        while (m < members + n && !bnet_json_text_is(r, m->key))
            m++;
        bnet_json_next(r);
        bool wanted = m < members + n;
        if (wanted && m->seen)
            bnet_json_fail(&t->at, m->key, "duplicate object key");
        if (wanted)
            m->seen = true;
        if (wanted && m->reader && r->event != BNET_JSON_NULL)
            *m->reader = *r;
        if (wanted && m->tree)
            plant(t, r, m->key, tree);
        else
            bnet_json_skip(r);
    }
}

static void read_model(bnet_hf_tok *t, bnet_json_reader *r, json_t *tree)
{
    member members[] = {{"type", true, NULL, false},
                        {"unk_token", true, NULL, false},
                        {"continuing_subword_prefix", true, NULL, false},
                        {"end_of_word_suffix", true, NULL, false},
                        {"ignore_merges", true, NULL, false},
                        {"byte_fallback", true, NULL, false},
                        {"vocab", false, &t->vocab, false},
                        {"merges", false, &t->merges, false}};
    if (r->event != BNET_JSON_OBJECT)
        bnet_json_fail(&t->at, "model", "is %s; an object was expected",
                       bnet_json_event_name(r->event));
    take_members(t, r, members, BNET_COUNT(members), tree);
}

void bnet_hf_read_sections(bnet_hf_tok *t, const char *data, size_t n)
{
    bnet_json_reader r = bnet_json_reader_of(data, n), model = {.event = BNET_JSON_END};
    member members[] = {{"normalizer", true, NULL, false},
                        {"pre_tokenizer", true, NULL, false},
                        {"post_processor", true, NULL, false},
                        {"added_tokens", false, &t->added, false},
                        {"model", false, &model, false}};
    if (bnet_json_check(&r, "document", &t->at) != BITNET_OK)
        return;
    t->vocab = t->merges = t->added = model;
    json_t *inner = json_object();
    t->root = json_object();
    if (!t->root || !inner)
        bnet_json_no_memory(&t->at);
    bnet_json_next(&r);
    take_members(t, &r, members, BNET_COUNT(members), t->root);
    if (model.event != BNET_JSON_END)
        read_model(t, &model, inner);
    if (model.event == BNET_JSON_END)
        json_decref(inner);
    else if (json_object_set_new(t->root, "model", inner) != 0)
        bnet_json_no_memory(&t->at);
}
