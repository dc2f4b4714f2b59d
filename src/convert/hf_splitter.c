/* hf_splitter.c - which of our tokenizers a tokenizer.json describes: its normalizer, pre_tokenizer
 * and post_processor are matched against the two families we run; anything else is refused by name.
 */
#include <stdio.h>

#include "convert/hf_tokenizer.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581, SentencePiece's space */

static const struct splitter {
    const char *pre, *regex;
} splitters[] = {
    {"llama-bpe", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                  "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
};

#define MAX_STEPS 16

/* The steps of a normalizer, pre_tokenizer or post_processor: one object, or the members of a
 * Sequence. */
typedef struct steps {
    const char *key;
    const json_t *step[MAX_STEPS];
    const char *type[MAX_STEPS];
    size_t n;
} steps;

static bitnet_status add_step(const bnet_hf_tok *t, steps *s, const json_t *step)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    if (!type)
        return bnet_json_fail(&t->at, s->key, "a step has no type");
    if (s->n == MAX_STEPS)
        return bnet_json_fail(&t->at, s->key, "has more than %d steps", MAX_STEPS);
    s->step[s->n] = step;
    s->type[s->n++] = type;
    return BITNET_OK;
}

static bitnet_status read_steps(const bnet_hf_tok *t, const char *key, const char *members,
                                steps *s)
{
    json_t *obj = NULL, *list = NULL;
    *s = (steps){.key = key};
    bitnet_status st = bnet_json_object(t->root, &t->at, key, &obj);
    if (st != BITNET_OK || !obj)
        return st;
    const char *type = json_string_value(json_object_get(obj, "type"));
    if (!type || strcmp(type, "Sequence") != 0)
        return add_step(t, s, obj);
    st = bnet_json_array(obj, &t->at, members, &list);
    for (size_t i = 0; st == BITNET_OK && i < json_array_size(list); i++)
        st = add_step(t, s, json_array_get(list, i));
    return st;
}

static const json_t *find_step(const steps *s, const char *type)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->type[i], type) == 0)
            return s->step[i];
    return NULL;
}

/* A boolean member of a step; absent means `absent`. */
static bool flag(const json_t *step, const char *key, bool absent)
{
    const json_t *v = json_object_get(step, key);
    return v && json_is_boolean(v) ? json_is_true(v) : absent;
}

static bool text_is(const json_t *step, const char *key, const char *want)
{
    const char *s = json_string_value(json_object_get(step, key));
    return s && strcmp(s, want) == 0;
}

static bitnet_status unsupported(const bnet_hf_tok *t, const steps *s, size_t i, const char *want)
{
    char quoted[64];
    return bnet_json_fail(&t->at, s->key, "step \"%s\" is not supported here; %s",
                          bnet_quote(s->type[i], strlen(s->type[i]), quoted, sizeof quoted), want);
}

/* ---- byte-level BPE ---- */

static bitnet_status match_regex(bnet_hf_tok *t, const json_t *split)
{
    char quoted[384];
    const json_t *pattern = json_object_get(split, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    if (!regex)
        return bnet_json_fail(&t->at, "pre_tokenizer", "the Split step has no pattern.Regex");
    bool isolated = text_is(split, "behavior", "Isolated") && !flag(split, "invert", false);
    bool matches = text_is(split, "behavior", "Removed") && flag(split, "invert", false);
    if (!isolated && !matches)
        return bnet_json_fail(&t->at, "pre_tokenizer",
                              "the Split step's behavior is not Isolated (or Removed, inverted)");
    for (size_t i = 0; i < BNET_COUNT(splitters); i++)
        if (strcmp(splitters[i].regex, regex) == 0)
            t->v->pre = splitters[i].pre;
    if (t->v->pre)
        return BITNET_OK;
    return bnet_json_fail(&t->at, "pre_tokenizer",
                          "splitter regex is neither llama-3's nor gpt-2's: %s",
                          bnet_quote(regex, strlen(regex), quoted, sizeof quoted));
}

static bitnet_status read_byte_level(bnet_hf_tok *t, const steps *pre)
{
    const json_t *bytes = find_step(pre, "ByteLevel"), *split = find_step(pre, "Split");
    for (size_t i = 0; i < pre->n; i++)
        if (pre->step[i] != bytes && pre->step[i] != split)
            return unsupported(t, pre, i, "one Split and one ByteLevel are");
    if (flag(bytes, "add_prefix_space", true))
        return bnet_json_fail(&t->at, "pre_tokenizer",
                              "ByteLevel with add_prefix_space true is not supported");
    bool regex = flag(bytes, "use_regex", true);
    if (split && regex)
        return bnet_json_fail(&t->at, "pre_tokenizer",
                              "a Split step and ByteLevel with use_regex true: two splitters");
    if (!split && !regex)
        return bnet_json_fail(&t->at, "pre_tokenizer",
                              "no splitter: ByteLevel has use_regex false and there is no Split");
    t->v->model = "gpt2";
    t->byte_level = true;
    if (!split) {
        t->v->pre = "gpt-2";
        return BITNET_OK;
    }
    return match_regex(t, split);
}

static bitnet_status check_no_normalizer(const bnet_hf_tok *t)
{
    steps norm;
    bitnet_status st = read_steps(t, "normalizer", "normalizers", &norm);
    if (st == BITNET_OK && norm.n > 0)
        st = unsupported(t, &norm, 0, "a byte-level tokenizer must have no normalizer");
    return st;
}

static void warn_merges_flag(const bnet_hf_tok *t)
{
    bool ignore = flag(t->model, "ignore_merges", false),
         want = strcmp(t->v->pre, "llama-bpe") == 0;
    if (ignore != want)
        bnet_logf(t->log, BITNET_LOG_WARN, "convert",
                  "%s: ignore_merges is %s, but GGUF readers take it as %s for splitter %s; rare "
                  "words may split otherwise",
                  t->at.file, ignore ? "true" : "false", want ? "true" : "false", t->v->pre);
}

/* ---- SentencePiece form ---- */

/* Prepend and Replace turn " a b" into marks; nothing else may change the text. */
static bitnet_status read_spm_normalizer(bnet_hf_tok *t, bool *prefix)
{
    steps norm;
    bitnet_status st = read_steps(t, "normalizer", "normalizers", &norm);
    for (size_t i = 0; st == BITNET_OK && i < norm.n; i++) {
        const json_t *s = norm.step[i];
        if (strcmp(norm.type[i], "Prepend") == 0 && text_is(s, "prepend", SPACE_MARK))
            *prefix = true;
        else if (strcmp(norm.type[i], "Replace") != 0 || !text_is(s, "content", SPACE_MARK) ||
                 !text_is(json_object_get(s, "pattern"), "String", " "))
            st = unsupported(t, &norm, i, "Prepend and Replace of the space by U+2581 are");
    }
    return st;
}

static bitnet_status read_spm(bnet_hf_tok *t, const steps *pre)
{
    bool prefix = false;
    bitnet_status st = read_spm_normalizer(t, &prefix);
    for (size_t i = 0; st == BITNET_OK && i < pre->n; i++) {
        const json_t *s = pre->step[i];
        if (strcmp(pre->type[i], "Metaspace") != 0 || !text_is(s, "replacement", SPACE_MARK))
            return unsupported(t, pre, i, "with byte_fallback, Metaspace with U+2581 is");
        if (json_object_get(s, "prepend_scheme"))
            prefix = !text_is(s, "prepend_scheme", "never");
        else
            prefix = flag(s, "add_prefix_space", true);
    }
    t->v->model = "llama";
    t->v->pre = "default";
    t->v->add_space_prefix = prefix;
    return st;
}

static bitnet_status check_affixes(const bnet_hf_tok *t)
{
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < BNET_COUNT(keys); i++) {
        const char *s = NULL;
        bitnet_status st = bnet_json_string(t->model, &t->at, keys[i], &s);
        if (st == BITNET_OK && s && s[0])
            st = bnet_json_fail(&t->at, keys[i],
                                "is set; tokens with marks at word borders are not supported");
        if (st != BITNET_OK)
            return st;
    }
    return BITNET_OK;
}

bitnet_status bnet_hf_read_splitter(bnet_hf_tok *t)
{
    steps pre;
    bitnet_status st = check_affixes(t);
    if (st == BITNET_OK)
        st = read_steps(t, "pre_tokenizer", "pretokenizers", &pre);
    if (st != BITNET_OK)
        return st;
    if (find_step(&pre, "ByteLevel")) {
        st = read_byte_level(t, &pre);
        if (st == BITNET_OK)
            st = check_no_normalizer(t);
        if (st == BITNET_OK)
            warn_merges_flag(t);
        return st;
    }
    if (flag(t->model, "byte_fallback", false))
        return read_spm(t, &pre);
    if (pre.n > 0)
        return unsupported(t, &pre, 0, "ByteLevel, or Metaspace with byte_fallback, is");
    return bnet_json_fail(&t->at, "pre_tokenizer",
                          "is missing, and the model has no byte_fallback");
}

/* ---- post_processor ---- */

bitnet_status bnet_hf_read_template(bnet_hf_tok *t)
{
    steps post;
    json_t *single = NULL;
    bitnet_status st = read_steps(t, "post_processor", "processors", &post);
    for (size_t i = 0; st == BITNET_OK && i < post.n; i++) {
        if (strcmp(post.type[i], "ByteLevel") == 0)
            continue;
        if (strcmp(post.type[i], "TemplateProcessing") != 0)
            return unsupported(t, &post, i, "ByteLevel and TemplateProcessing are");
        st = bnet_json_array(post.step[i], &t->at, "single", &single);
        if (st == BITNET_OK)
            t->v->add_bos = json_object_get(json_array_get(single, 0), "SpecialToken") != NULL;
    }
    return st;
}
