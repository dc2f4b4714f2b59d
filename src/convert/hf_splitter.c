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

static void add_step(bnet_hf_tok *t, steps *s, const json_t *step)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    if (!type)
        bnet_json_fail(&t->at, s->key, "a step has no type");
    else if (s->n == MAX_STEPS)
        bnet_json_fail(&t->at, s->key, "has more than %d steps", MAX_STEPS);
    else {
        s->step[s->n] = step;
        s->type[s->n++] = type;
    }
}

/* No steps: there is no such object, or reading it failed. */
static steps read_steps(bnet_hf_tok *t, const char *key, const char *members)
{
    steps s = {.key = key};
    const json_t *obj = bnet_json_object(t->root, &t->at, key);
    const char *type = json_string_value(json_object_get(obj, "type"));
    if (obj && (!type || strcmp(type, "Sequence") != 0)) {
        add_step(t, &s, obj);
    } else if (obj) {
        const json_t *list = bnet_json_array(obj, &t->at, members);
        for (size_t i = 0; t->at.status == BITNET_OK && i < json_array_size(list); i++)
            add_step(t, &s, json_array_get(list, i));
    }
    return s;
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

static void unsupported(bnet_hf_tok *t, const steps *s, size_t i, const char *want)
{
    char quoted[64];
    bnet_json_fail(&t->at, s->key, "step \"%s\" is not supported here; %s",
                   bnet_quote(s->type[i], strlen(s->type[i]), quoted, sizeof quoted), want);
}

/* ---- byte-level BPE ---- */

static void match_regex(bnet_hf_tok *t, const json_t *split)
{
    char quoted[384];
    const json_t *pattern = json_object_get(split, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    bool isolated = text_is(split, "behavior", "Isolated") && !flag(split, "invert", false);
    bool matches = text_is(split, "behavior", "Removed") && flag(split, "invert", false);
    if (!regex)
        bnet_json_fail(&t->at, "pre_tokenizer", "the Split step has no pattern.Regex");
    if (!isolated && !matches)
        bnet_json_fail(&t->at, "pre_tokenizer",
                       "the Split step's behavior is not Isolated (or Removed, inverted)");
    for (size_t i = 0; regex && i < BNET_COUNT(splitters); i++)
        if (strcmp(splitters[i].regex, regex) == 0)
            t->v->pre = splitters[i].pre;
    if (regex && !t->v->pre)
        bnet_json_fail(&t->at, "pre_tokenizer",
                       "splitter regex is neither llama-3's nor gpt-2's: %s",
                       bnet_quote(regex, strlen(regex), quoted, sizeof quoted));
}

static void read_byte_level(bnet_hf_tok *t, const steps *pre)
{
    const json_t *bytes = find_step(pre, "ByteLevel"), *split = find_step(pre, "Split");
    for (size_t i = 0; i < pre->n; i++)
        if (pre->step[i] != bytes && pre->step[i] != split)
            unsupported(t, pre, i, "one Split and one ByteLevel are");
    if (flag(bytes, "add_prefix_space", true))
        bnet_json_fail(&t->at, "pre_tokenizer",
                       "ByteLevel with add_prefix_space true is not supported");
    bool regex = flag(bytes, "use_regex", true);
    if (split && regex)
        bnet_json_fail(&t->at, "pre_tokenizer",
                       "a Split step and ByteLevel with use_regex true: two splitters");
    if (!split && !regex)
        bnet_json_fail(&t->at, "pre_tokenizer",
                       "no splitter: ByteLevel has use_regex false and there is no Split");
    t->v->model = "gpt2";
    t->byte_level = true;
    if (split)
        match_regex(t, split);
    else
        t->v->pre = "gpt-2";
    steps norm = read_steps(t, "normalizer", "normalizers");
    if (norm.n > 0)
        unsupported(t, &norm, 0, "a byte-level tokenizer must have no normalizer");
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

/* Prepend and Replace turn " a b" into marks; nothing else may change the text. Returns whether a
 * mark is prepended. */
static bool read_spm_normalizer(bnet_hf_tok *t)
{
    bool prefix = false;
    steps norm = read_steps(t, "normalizer", "normalizers");
    for (size_t i = 0; i < norm.n; i++) {
        const json_t *s = norm.step[i];
        if (strcmp(norm.type[i], "Prepend") == 0 && text_is(s, "prepend", SPACE_MARK))
            prefix = true;
        else if (strcmp(norm.type[i], "Replace") != 0 || !text_is(s, "content", SPACE_MARK) ||
                 !text_is(json_object_get(s, "pattern"), "String", " "))
            unsupported(t, &norm, i, "Prepend and Replace of the space by U+2581 are");
    }
    return prefix;
}

static void read_spm(bnet_hf_tok *t, const steps *pre)
{
    bool prefix = read_spm_normalizer(t);
    for (size_t i = 0; i < pre->n; i++) {
        const json_t *s = pre->step[i];
        if (strcmp(pre->type[i], "Metaspace") != 0 || !text_is(s, "replacement", SPACE_MARK))
            unsupported(t, pre, i, "with byte_fallback, Metaspace with U+2581 is");
        if (json_object_get(s, "prepend_scheme"))
            prefix = !text_is(s, "prepend_scheme", "never");
        else
            prefix = flag(s, "add_prefix_space", true);
    }
    t->v->model = "llama";
    t->v->pre = "default";
    t->v->add_space_prefix = prefix;
}

static void check_affixes(bnet_hf_tok *t)
{
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < BNET_COUNT(keys); i++)
        if (bnet_json_string(t->model, &t->at, keys[i], "")[0])
            bnet_json_fail(&t->at, keys[i],
                           "is set; tokens with marks at word borders are not supported");
}

void bnet_hf_read_splitter(bnet_hf_tok *t)
{
    check_affixes(t);
    steps pre = read_steps(t, "pre_tokenizer", "pretokenizers");
    if (find_step(&pre, "ByteLevel")) {
        read_byte_level(t, &pre);
        if (t->at.status == BITNET_OK)
            warn_merges_flag(t);
    } else if (flag(t->model, "byte_fallback", false))
        read_spm(t, &pre);
    else if (pre.n > 0)
        unsupported(t, &pre, 0, "ByteLevel, or Metaspace with byte_fallback, is");
    else
        bnet_json_fail(&t->at, "pre_tokenizer", "is missing, and the model has no byte_fallback");
}

/* ---- post_processor ---- */

void bnet_hf_read_template(bnet_hf_tok *t)
{
    steps post = read_steps(t, "post_processor", "processors");
    for (size_t i = 0; i < post.n; i++) {
        if (strcmp(post.type[i], "ByteLevel") == 0)
            continue;
        if (strcmp(post.type[i], "TemplateProcessing") != 0)
            unsupported(t, &post, i, "ByteLevel and TemplateProcessing are");
        const json_t *single = bnet_json_array(post.step[i], &t->at, "single");
        t->v->add_bos = json_object_get(json_array_get(single, 0), "SpecialToken") != NULL;
    }
}
