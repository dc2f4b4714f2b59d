/* matcher.c - grammars and matchers as bitnet.h has them: opening, one timeline's position, and who
 * may forget what. */
#include "grammar/grammar.h"

/* ---- grammars ---- */

static void free_grammar(bitnet_grammar *g)
{
    bnet_masks_close(g);
    bnet_machine_close(&g->machine);
    bnet_program_free(&g->program);
    pthread_mutex_destroy(&g->lock);
    bnet_free(g);
}

static bitnet_status compile(bnet_program *p, bitnet_grammar_kind kind, bnet_span text,
                             bitnet_error *err)
{
    p->err = err;
    if (text.n > BNET_GRAM_TEXT)
        bnet_program_fail(p, BITNET_ARGUMENT, "it has %zu bytes, %zu are allowed", text.n,
                          BNET_GRAM_TEXT);
    else if (kind == BITNET_GRAMMAR_GBNF)
        bnet_gbnf_read(text, p);
    else if (kind == BITNET_GRAMMAR_JSON_SCHEMA)
        bnet_schema_read(text, p);
    else if (kind == BITNET_GRAMMAR_JSON_OBJECT)
        bnet_json_object_write(p);
    else
        bnet_program_fail(p, BITNET_ARGUMENT, "kind is %d, must be one of bitnet_grammar_kind",
                          (int)kind);
    bitnet_status st = bnet_program_finish(p);
    p->err = NULL;
    return st;
}

static bitnet_status prepare(bitnet_grammar *g, bitnet_error *err)
{
    bitnet_status st = bnet_tokenizer_trie(g->tokenizer, &g->trie, err);
    if (st != BITNET_OK)
        return st;
    if (!bnet_machine_open(&g->machine, &g->program) || !bnet_masks_open(g))
        return bnet_no_memory(err, "grammar");
    bnet_machine_begin(&g->machine);
    g->start = bnet_machine_start(&g->machine);
    return g->start == BNET_STATE_ERROR ? bnet_machine_fail(&g->machine, err) : BITNET_OK;
}

bitnet_status bnet_grammar_open(bnet_tokenizer *t, int n_vocab, bitnet_grammar_kind kind,
                                bnet_span text, bitnet_grammar **out, bitnet_error *err)
{
    bitnet_grammar *g = bnet_calloc(1, sizeof *g);
    if (!g)
        return bnet_no_memory(err, "grammar");
    pthread_mutex_init(&g->lock, NULL);
    g->tokenizer = t;
    g->n_vocab = n_vocab;
    bitnet_status st = compile(&g->program, kind, text, err);
    if (st == BITNET_OK)
        st = prepare(g, err);
    if (st == BITNET_OK)
        *out = g;
    else
        free_grammar(g);
    return st;
}

void bitnet_grammar_close(bitnet_grammar *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->closed = true;
    bool last = g->n_matchers == 0;
    pthread_mutex_unlock(&g->lock);
    if (last)
        free_grammar(g);
}

/* ---- matchers ---- */

static void enlist(bitnet_matcher *m)
{
    bitnet_grammar *g = m->grammar;
    m->before = NULL;
    m->after = g->matchers;
    if (m->after)
        m->after->before = m;
    g->matchers = m;
    g->n_matchers++;
}

static void delist(bitnet_matcher *m)
{
    bitnet_grammar *g = m->grammar;
    if (m->after)
        m->after->before = m->before;
    if (m->before)
        m->before->after = m->after;
    else
        g->matchers = m->after;
    g->n_matchers--;
}

/* Drops the states that no matcher stands in, where there are too many. Without the memory for it
 * they stay. */
static void tidy(bitnet_grammar *g)
{
    size_t n = 0;
    int32_t **states = NULL;
    if (bnet_machine_full(&g->machine))
        states = bnet_calloc(g->n_matchers + 1, sizeof *states);
    if (states) {
        for (bitnet_matcher *m = g->matchers; m; m = m->after)
            states[n++] = &m->state;
        states[n++] = &g->start;
        if (bnet_machine_keep(&g->machine, states, n))
            bnet_masks_forget(g);
    }
    bnet_free(states);
    bnet_machine_begin(&g->machine);
}

static void lock(const bitnet_matcher *m)
{
    pthread_mutex_lock(&m->grammar->lock);
}

static void unlock(const bitnet_matcher *m)
{
    pthread_mutex_unlock(&m->grammar->lock);
}

bitnet_status bitnet_matcher_open(bitnet_grammar *g, bool continues, bitnet_matcher **out,
                                  bitnet_error *err)
{
    if (!g || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "matcher: grammar and out must not be NULL");
    bitnet_matcher *m = bnet_calloc(1, sizeof *m);
    if (!m)
        return bnet_no_memory(err, "matcher");
    m->grammar = g;
    m->fresh = !continues;
    lock(m);
    m->state = g->start;
    enlist(m);
    unlock(m);
    *out = m;
    return BITNET_OK;
}

bitnet_status bitnet_matcher_fork(const bitnet_matcher *from, bitnet_matcher **out,
                                  bitnet_error *err)
{
    if (!from || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "matcher: matcher and out must not be NULL");
    bitnet_matcher *m = bnet_calloc(1, sizeof *m);
    if (!m)
        return bnet_no_memory(err, "matcher");
    lock(from);
    *m = *from;
    enlist(m);
    unlock(from);
    *out = m;
    return BITNET_OK;
}

void bitnet_matcher_close(bitnet_matcher *m)
{
    if (!m)
        return;
    bitnet_grammar *g = m->grammar;
    lock(m);
    delist(m);
    bool last = g->closed && g->n_matchers == 0;
    if (!last && g->n_matchers == 0)
        tidy(g); /* it may be kept for long before anybody uses it again */
    unlock(m);
    if (last)
        free_grammar(g);
    bnet_free(m);
}

bool bitnet_matcher_done(const bitnet_matcher *m)
{
    if (!m)
        return false;
    lock(m);
    bool done = m->ended || m->grammar->machine.states[m->state].ends;
    unlock(m);
    return done;
}

bitnet_status bitnet_matcher_mask(bitnet_matcher *m, uint32_t *allowed, size_t n_words,
                                  bitnet_error *err)
{
    const uint32_t *found;
    if (!m || !allowed)
        return bnet_fail(err, BITNET_ARGUMENT, "matcher: matcher and allowed must not be NULL");
    size_t n = bnet_grammar_words(m->grammar);
    if (n_words != n)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "matcher: n_words is %zu, but %d tokens have a mask of %zu words", n_words,
                         m->grammar->n_vocab, n);
    if (m->ended)
        return bnet_fail(err, BITNET_ARGUMENT, "matcher: the text has ended, nothing may follow");
    lock(m);
    tidy(m->grammar);
    bitnet_status st = bnet_grammar_mask(m->grammar, m->state, m->fresh, allowed, &found, err);
    if (st == BITNET_OK && found != allowed)
        memcpy(allowed, found, n * sizeof *allowed);
    unlock(m);
    return st;
}

static bitnet_status refused(const bitnet_matcher *m, int32_t id, bitnet_error *err)
{
    char text[64];
    size_t n = 0;
    const char *bytes = bnet_token_bytes(m->grammar->tokenizer, id, &n);
    return bnet_fail(err, BITNET_ARGUMENT, "matcher: token %d (\"%s\") may not follow here",
                     (int)id, bytes ? bnet_quote(bytes, n, text, sizeof text) : "no text");
}

static bitnet_status accept_stop(bitnet_matcher *m, int32_t id, bitnet_error *err)
{
    if (m->ended || !bitnet_matcher_done(m))
        return refused(m, id, err);
    m->ended = true;
    return BITNET_OK;
}

/* With the lock. */
static bitnet_status accept_text(bitnet_matcher *m, int32_t id, const char *bytes, size_t n,
                                 bitnet_error *err)
{
    bnet_machine *machine = &m->grammar->machine;
    tidy(m->grammar);
    int32_t state = m->state;
    bool dropped = m->fresh && m->grammar->trie->drops_space && bytes[0] == ' ';
    for (size_t i = dropped; i < n && state > BNET_STATE_DEAD; i++)
        state = bnet_machine_next(machine, state, (uint8_t)bytes[i]);
    if (state == BNET_STATE_ERROR)
        return bnet_machine_fail(machine, err);
    if (state == BNET_STATE_DEAD)
        return refused(m, id, err);
    m->state = state;
    m->fresh = bnet_token_restarts(m->grammar->tokenizer, id);
    return BITNET_OK;
}

bitnet_status bitnet_matcher_accept(bitnet_matcher *m, int32_t id, bitnet_error *err)
{
    size_t n;
    if (!m)
        return bnet_fail(err, BITNET_ARGUMENT, "matcher: matcher must not be NULL");
    if (bnet_token_stops(m->grammar->tokenizer, id))
        return accept_stop(m, id, err);
    const char *bytes = bnet_token_text(m->grammar->tokenizer, id, &n);
    if (!bytes || m->ended)
        return refused(m, id, err);
    lock(m);
    bitnet_status st = accept_text(m, id, bytes, n, err);
    unlock(m);
    return st;
}
