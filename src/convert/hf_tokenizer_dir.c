/* hf_tokenizer_dir.c - the tokenizer files of a directory put together: special ids, BOS rule, chat
 * template. */
#include <stdio.h>
#include <sys/stat.h>

#include "convert/hf_tokenizer.h"

#define MAX_TOKENIZER (128u << 20)
#define MAX_TEMPLATE  (1u << 20)

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* The text of a special token in tokenizer_config.json: a string, or an object with "content". */
static const char *token_name(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

/* Sets *id from a name where the model's config gave none. */
static void name_to_id(const bnet_vocab *v, const json_t *root, bnet_json_at *at, const char *key,
                       int32_t *id)
{
    const char *name = token_name(root, key);
    if (*id >= 0 || !name)
        return;
    *id = bnet_vocab_find(v, name, strlen(name));
    if (*id < 0)
        bnet_json_refuse(at, key, name, "is not in the vocabulary");
}

/* chat_template: a text, or a list of {name, template} of which "default" is meant. */
static void read_chat(bnet_vocab *v, const json_t *root, bnet_json_at *at, const bnet_log *log)
{
    const json_t *t = json_object_get(root, "chat_template");
    const char *text = json_string_value(t);
    for (size_t i = 0; json_is_array(t) && i < json_array_size(t); i++) {
        const json_t *row = json_array_get(t, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        if (name && strcmp(name, "default") == 0)
            text = json_string_value(json_object_get(row, "template"));
    }
    if (t && !json_is_null(t) && !json_is_string(t) && !json_is_array(t))
        bnet_json_fail(at, "chat_template", "is %s; a string or a list was expected",
                       bnet_json_kind(t));
    if (json_is_array(t) && !text)
        bnet_logf(log, BITNET_LOG_WARN, "convert",
                  "%s: no chat_template is named \"default\"; none is taken", at->file);
    if (text)
        bnet_str_puts(&v->chat_template, text);
    if (v->chat_template.failed)
        bnet_json_no_memory(at);
}

static bitnet_status read_names(bnet_vocab *v, const char *path, const bnet_log *log,
                                bitnet_error *err)
{
    bnet_json_at at = {path, "", BITNET_TOKENIZER, err, BITNET_OK};
    json_t *root = bnet_json_file(MAX_TOKENIZER, &at);
    name_to_id(v, root, &at, "bos_token", &v->bos);
    name_to_id(v, root, &at, "eos_token", &v->eos);
    if (root)
        read_chat(v, root, &at, log);
    bool add_bos = bnet_json_bool(root, &at, "add_bos_token", false);
    if (v->add_bos < 0 && json_is_boolean(json_object_get(root, "add_bos_token")))
        v->add_bos = add_bos;
    json_decref(root);
    return at.status;
}

static bitnet_status read_jinja(bnet_vocab *v, const char *path, bitnet_error *err)
{
    char *text = NULL;
    size_t n = 0;
    bitnet_status st = bnet_read_file(path, MAX_TEMPLATE, &text, &n, err);
    if (st != BITNET_OK)
        return st;
    bnet_str_free(&v->chat_template);
    bnet_str_add(&v->chat_template, text, n);
    bnet_free(text);
    return v->chat_template.failed ? bnet_no_memory(err, path) : BITNET_OK;
}

static void take_config_ids(bnet_vocab *v, const bnet_hf_config *c)
{
    v->bos = c->bos;
    v->pad = c->pad;
    v->eos = c->n_eos ? c->eos[0] : -1;
    for (size_t i = 1; i < c->n_eos; i++)
        if (bnet_vocab_find(v, "<|eot_id|>", 10) == c->eos[i])
            v->eot = c->eos[i];
}

/* Where nothing said: llama-3 and SentencePiece vocabularies begin a text with BOS, gpt-2 ones do
 * not. */
static void settle_bos(bnet_vocab *v)
{
    if (v->add_bos < 0)
        v->add_bos = strcmp(v->pre, "gpt-2") != 0;
    if (v->bos < 0)
        v->add_bos = 0;
}

static bitnet_status read_main(const char *path, size_t n_vocab, const bnet_log *log, bnet_vocab *v,
                               bitnet_error *err)
{
    char *data = NULL;
    size_t n = 0;
    if (!exists(path))
        return bnet_fail(err, BITNET_TOKENIZER,
                         "%s: missing; save the tokenizer in its fast form (tokenizer.json)", path);
    bitnet_status st = bnet_read_file(path, MAX_TOKENIZER, &data, &n, err);
    if (st == BITNET_OK)
        st = bnet_hf_tokenizer_parse(data, n, path, n_vocab, log, v, err);
    bnet_free(data);
    return st;
}

bitnet_status bnet_hf_tokenizer_read(const char *dir, const bnet_hf_config *config,
                                     const bnet_log *log, bnet_vocab *out, bitnet_error *err)
{
    bnet_vocab v = {0};
    bnet_str main = {0}, names = {0}, jinja = {0};
    bnet_str_addf(&main, "%s/tokenizer.json", dir);
    bnet_str_addf(&names, "%s/tokenizer_config.json", dir);
    bnet_str_addf(&jinja, "%s/chat_template.jinja", dir);
    bitnet_status st = main.failed || names.failed || jinja.failed
                           ? bnet_no_memory(err, dir)
                           : read_main(main.data, (size_t)config->n_vocab, log, &v, err);
    if (st == BITNET_OK)
        take_config_ids(&v, config);
    if (st == BITNET_OK && exists(names.data))
        st = read_names(&v, names.data, log, err);
    if (st == BITNET_OK && exists(jinja.data))
        st = read_jinja(&v, jinja.data, err);
    bnet_str_free(&main);
    bnet_str_free(&names);
    bnet_str_free(&jinja);
    if (st != BITNET_OK) {
        bnet_vocab_free(&v);
        return st;
    }
    settle_bos(&v);
    *out = v;
    return BITNET_OK;
}
