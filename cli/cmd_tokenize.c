/* cmd_tokenize.c - `bitnet tokenize`: ids of a text, or text of ids. */
#include <ctype.h>
#include <errno.h>

#include "cli.h"

enum { PORTION = 1 << 16 };

static int report(const loaded *m, const id_list *v, const buffer *t)
{
    const bitnet_model_info *i = m->info;
    if (!opt_report(m->args))
        return EXIT_OK;
    json_t *pieces = json_array();
    for (size_t k = 0; k < v->n && !interrupted(); k++)
        json_array_append_new(pieces, j_piece(m, v->data[k]));
    if (interrupted()) {
        json_decref(pieces);
        return interrupted();
    }
    return j_report(m->args,
                    j_object("ids:j pieces:j count:n text:j tokenizer:j model:t",
                             j_ids(v->data, v->n), pieces, v->n, j_text(t->data, t->n),
                             j_object("type:t origin:t bos:i eos:i n_vocab:i", i->tokenizer, "gguf",
                                      i->bos_id, i->eos_id, i->n_vocab),
                             m->path));
}

static void add_piece(buffer *out, const loaded *m, int32_t id)
{
    size_t n = 0;
    const char *bytes = bitnet_token_bytes(m->engine, id, &n);
    text_printf(out, "%7d  '", id);
    text_visible(out, bytes ? bytes : "", bytes ? n : 0, false);
    text_puts(out, bitnet_token_special(m->engine, id) ? "'  special\n" : "'\n");
}

/* In portions: a long list is not held in memory, and a signal ends it between two of them. */
static void print_pieces(const loaded *m, const id_list *v)
{
    buffer out = {0};
    for (size_t i = 0; i < v->n && !wants_to_stop(NULL); i++) {
        add_piece(&out, m, v->data[i]);
        if (out.n >= PORTION)
            out_buffer(&out);
    }
    if (!wants_to_stop(NULL))
        text_printf(&out, "%zu token%s\n", v->n, plural(v->n));
    out_buffer(&out);
}

/* ---- ids to text ---- */

static int parse_ids(const args *a, int n_vocab, id_list *out)
{
    const char *p = opt_text(a, OPT_IDS);
    for (;;) {
        char *end;
        p += strspn(p, " ,\t\n[]");
        if (!*p)
            return EXIT_OK;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id >= n_vocab || !strchr(" ,\t\n[]", *end))
            return fail(EXIT_USAGE, "--ids: '%.*s' is not a token of this model (0 to %d)",
                        (int)strcspn(p, " ,\t\n[]"), p, n_vocab - 1);
        ids_push(out, (int32_t)id);
        p = end;
    }
}

static int decode_ids(const loaded *m, id_list *v, buffer *t)
{
    const args *a = m->args;
    unsigned flags = opt_on(a, OPT_PRINT_SPECIAL) ? BITNET_TEXT_SPECIAL : 0u;
    if (opt_given(a, OPT_TEXT) || opt_given(a, OPT_TOK_FILE) || a->n_words)
        return fail(EXIT_USAGE, "tokenize: --ids and a text exclude each other");
    int rc = parse_ids(a, m->info->n_vocab, v);
    return rc ? rc : detokenize(m, v->data, v->n, flags, t);
}

static int get_text(const args *a, buffer *t)
{
    bool found, from_file;
    int rc = read_text(a, OPT_TEXT, OPT_TOK_FILE, t, &found, &from_file);
    if (!rc && !found)
        rc = fail(
            EXIT_USAGE,
            "tokenize: no text; give it as an argument, with --text, --file or on standard input");
    return rc;
}

int cmd_tokenize(args *a)
{
    loaded m = {0};
    id_list v = {0};
    buffer t = {0};
    bool decode = opt_given(a, OPT_IDS);
    int rc = decode ? EXIT_OK : get_text(a, &t);
    rc = rc ? rc : load_engine(&m, a, true);
    if (!rc)
        rc = decode ? decode_ids(&m, &v, &t) : tokenize_text(&m, t.data, t.n, text_flags(a), &v);
    rc = rc ? rc : report(&m, &v, &t);
    if (!rc && !opt_json(a) && !decode)
        print_pieces(&m, &v);
    if (!rc && !opt_json(a) && decode)
        text_puts(&t, "\n"), out_write(t.data, t.n);
    free(v.data);
    free_buffer(&t);
    load_close(&m);
    return rc ? rc : interrupted();
}
