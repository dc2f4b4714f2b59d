/* form.c - --grammar and --json-schema of run and chat: the text is one of the grammar, or it is
 * said that it was cut. Hides: where the grammar comes from, and how the sampler is held to it. */
#include "cli.h"

/* FILE, or the schema itself: it begins with a brace or is `true`. */
static int read_form(const args *a, option_key key, buffer *out)
{
    const char *given = opt_text(a, key);
    const char *text = given + strspn(given, " \t\r\n");
    bool itself = key == OPT_JSON_SCHEMA && (*text == '{' || strcmp(text, "true") == 0);
    if (!itself)
        return read_input(given, out);
    text_puts(out, text);
    return EXIT_OK;
}

static int check_others(const args *a)
{
    const char *name = opt_given(a, OPT_GRAMMAR) ? "--grammar" : "--json-schema";
    if (opt_given(a, OPT_GRAMMAR) && opt_given(a, OPT_JSON_SCHEMA))
        return fail(EXIT_USAGE,
                    "--grammar and --json-schema: a text has one form; use one of them");
    if (opt_given(a, OPT_RECEIPT))
        return fail(
            EXIT_USAGE,
            "%s: a receipt says how its text is made again, and has no place for a grammar; "
            "leave --receipt out",
            name);
    if (opt_on(a, OPT_IGNORE_EOS))
        return fail(EXIT_USAGE, "%s: the text ends where the grammar does; leave --ignore-eos out",
                    name);
    return EXIT_OK;
}

int form_open(const loaded *m, text_form *f)
{
    const args *a = m->args;
    option_key key = opt_given(a, OPT_GRAMMAR) ? OPT_GRAMMAR : OPT_JSON_SCHEMA;
    bitnet_error err = {0};
    buffer text = {0};
    *f = (text_form){.m = m};
    if (!opt_given(a, key))
        return EXIT_OK;
    int rc = check_others(a);
    rc = rc ? rc : read_form(a, key, &text);
    if (!rc)
        rc = outcome(bitnet_grammar_open(m->engine,
                                         key == OPT_GRAMMAR ? BITNET_GRAMMAR_GBNF
                                                            : BITNET_GRAMMAR_JSON_SCHEMA,
                                         text.data, text.n, &f->grammar, &err),
                     &err);
    free_buffer(&text);
    return rc;
}

void form_close(text_form *f)
{
    bitnet_matcher_close(f->matcher);
    bitnet_grammar_close(f->grammar);
    *f = (text_form){0};
}

int form_begin(text_form *f, bitnet_sampler *sampler, const id_list *prompt)
{
    bitnet_error err = {0};
    if (!f->grammar)
        return EXIT_OK;
    bool continues = !bitnet_token_special(f->m->engine, prompt->data[prompt->n - 1]);
    bitnet_matcher_close(f->matcher);
    f->matcher = NULL;
    f->sampler = sampler;
    f->failed = false;
    bitnet_status st = bitnet_matcher_open(f->grammar, continues, &f->matcher, &err);
    if (st == BITNET_OK)
        st = bitnet_matcher_constrain(f->matcher, sampler, NULL, 0, &err);
    return outcome(st, &err);
}

bool form_follow(text_form *f, int32_t id)
{
    if (!f->matcher)
        return true;
    bitnet_status st = bitnet_matcher_accept(f->matcher, id, &f->err);
    if (st == BITNET_OK && !bitnet_token_stops(f->m->engine, id))
        st = bitnet_matcher_constrain(f->matcher, f->sampler, NULL, 0, &f->err);
    f->failed = st != BITNET_OK;
    return !f->failed;
}

int form_outcome(const text_form *f)
{
    bool ended = f->m && (f->m->timed_out || interrupted());
    return f->failed && !ended ? fail_with(&f->err) : EXIT_OK;
}

bool form_is_cut(const text_form *f)
{
    return f->matcher && !bitnet_matcher_done(f->matcher);
}
