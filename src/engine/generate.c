/* generate.c - sync, then choose, show, append until something says stop. Hides: the order of the
 * checks and the joining of detokeniser, stop strings and callback. Allocates nothing: text buffers
 * were reserved by the session. */
#include "engine/engine.h"
#include "sampler/sampler.h"

enum { MAX_TOKENS_DEFAULT = 256 };

typedef struct generation {
    bitnet_session *session;
    bitnet_sampler *sampler;
    const bitnet_generate_options *o;
    bitnet_generate_result *r;
} generation;

void bitnet_generate_options_init(bitnet_generate_options *o)
{
    if (o)
        *o = (bitnet_generate_options){.struct_size = sizeof *o, .max_tokens = MAX_TOKENS_DEFAULT};
}

const char *bitnet_finish_text(bitnet_finish finish)
{
    static const char *const texts[] = {"length",      "stop_id", "eos",
                                        "stop_string", "context", "cancelled"};
    size_t i = (size_t)finish;
    return i < BNET_COUNT(texts) ? texts[i] : "unknown";
}

static bool is_stop_id(const bitnet_generate_options *o, int32_t id)
{
    for (size_t i = 0; i < o->n_stop_ids; i++)
        if (o->stop_ids[i] == id)
            return true;
    return false;
}

/* The token ends the generation by itself, whatever its text. */
static bool ends_by_id(const generation *g, int32_t id)
{
    if (is_stop_id(g->o, id))
        g->r->finish = BITNET_FINISH_STOP_ID;
    else if (!g->o->ignore_eos && bnet_token_stops(g->session->engine->tokenizer, id))
        g->r->finish = BITNET_FINISH_EOS;
    else
        return false;
    return true;
}

/* Until min_tokens are made, the sampler does not choose tokens that end the generation; their
 * probability goes to the others. False: no memory. */
static bool forbid_ends(const generation *g, bool forbid)
{
    const int32_t *ends;
    size_t n = bnet_token_stop_list(g->session->engine->tokenizer, &ends);
    bool ok = true;
    for (size_t i = 0; i < n && !g->o->ignore_eos; i++)
        ok = bnet_sampler_forbid(g->sampler, ends[i], forbid) && ok;
    for (size_t i = 0; i < g->o->n_stop_ids; i++)
        ok = bnet_sampler_forbid(g->sampler, g->o->stop_ids[i], forbid) && ok;
    return ok;
}

/* There is no room for another token after this one. */
static bool ends_by_count(const generation *g)
{
    const bitnet_session *s = g->session;
    if (g->r->n_generated >= g->o->max_tokens)
        g->r->finish = BITNET_FINISH_LENGTH;
    else if (s->n_pos >= (size_t)s->n_ctx || bnet_kv_fits(&s->entry, s->n_pos + 1, NULL))
        g->r->finish = BITNET_FINISH_CONTEXT;
    else
        return false;
    return true;
}

/* Shows what may be shown after id, which has no text itself if it is silent; `last`: all that is
 * left. *wanted false: the callback wants no more. */
static bitnet_status speak(generation *g, int32_t id, bool silent, bool last, bool *wanted,
                           bitnet_error *err)
{
    const char *text;
    size_t n_bytes;
    if (!bnet_stream_take(&g->session->stream, silent ? NULL : &id, last, &text, &n_bytes))
        return bnet_no_memory(err, "generated text");
    *wanted = !g->o->on_text || g->o->on_text(g->o->user, text, n_bytes, id);
    return BITNET_OK;
}

/* What a chosen token does to the text. True in *done: r->finish says why. */
static bitnet_status take(generation *g, int32_t id, bool *done, bitnet_error *err)
{
    bool by_id = ends_by_id(g, id);
    bool last = by_id || ends_by_count(g), wanted = true;
    bitnet_status st = speak(g, id, by_id, last, &wanted, err);
    bool stopped = g->session->stream.stopped;
    *done = last || stopped || !wanted;
    if (stopped && !by_id)
        g->r->finish = BITNET_FINISH_STOP_STRING;
    else if (!wanted && !last)
        g->r->finish = BITNET_FINISH_CANCELLED;
    return st;
}

/* Puts the token on the timeline. Being cancelled here is an orderly end: what was held back is
 * shown. */
static bitnet_status append(generation *g, int32_t id, bool *done, bitnet_error *err)
{
    bitnet_status st = bnet_session_append(g->session, &id, 1, NULL, NULL, err);
    if (st != BITNET_CANCELLED)
        return st;
    *done = true;
    g->r->finish = BITNET_FINISH_CANCELLED;
    bool wanted;
    return bnet_stream_holds(&g->session->stream) ? speak(g, id, true, true, &wanted, err)
                                                  : BITNET_OK;
}

/* The token that the session's sampler chose after the last pass. */
static int32_t next_token(generation *g)
{
    g->r->last_id = g->session->chosen;
    if (++g->r->n_generated == g->o->min_tokens)
        forbid_ends(g, false);
    return g->session->chosen;
}

static bitnet_status decode(generation *g, double start, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    bool done = g->o->max_tokens == 0;
    double first = 0;
    while (!done) {
        int32_t id = next_token(g);
        if (g->r->n_generated == 1) {
            first = bnet_now_ms();
            g->r->first_token_ms = first - start;
        }
        st = take(g, id, &done, err);
        if (st == BITNET_OK && !done)
            st = append(g, id, &done, err);
        if (st != BITNET_OK)
            break;
    }
    if (g->r->n_generated)
        g->r->decode_ms = bnet_now_ms() - first;
    return st;
}

static bitnet_status check(const bitnet_session *s, const bitnet_sampler *sampler, size_t n_ids,
                           const bitnet_generate_options *o, bitnet_error *err)
{
    if (n_ids == 0)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "generate: the prompt has no tokens; begin with BOS at least");
    if (bnet_sampler_vocab(sampler) != s->engine->info.n_vocab)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "generate: the sampler was opened for %d tokens, the model has %d",
                         bnet_sampler_vocab(sampler), s->engine->info.n_vocab);
    if (o->n_stop_ids && !o->stop_ids)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "generate options: stop_ids must not be NULL when n_stop_ids is %zu",
                         o->n_stop_ids);
    return bnet_stops_check("generate options", o->stops, o->n_stops, err);
}

/* A reply continues the text of its prompt, unless that ends with a special token (BOS, a turn
 * mark): then a text begins, as it does for the tokenizer. */
static bool begins_text(const bitnet_engine *e, const int32_t *ids, size_t n_ids)
{
    return bnet_token_special(e->tokenizer, ids[n_ids - 1]);
}

static bitnet_status prefill(generation *g, const int32_t *ids, size_t n_ids, bitnet_error *err)
{
    double start = bnet_now_ms();
    size_t n_reused = 0;
    bitnet_status st = bnet_session_sync(g->session, ids, n_ids, &n_reused, err);
    g->r->prefill_ms = bnet_now_ms() - start;
    g->r->n_prefilled = g->session->n_pos > n_reused ? g->session->n_pos - n_reused : 0;
    if (st == BITNET_CANCELLED)
        g->r->finish = BITNET_FINISH_CANCELLED;
    return st;
}

/* With session and sampler entered. */
static bitnet_status generate(generation *g, const int32_t *ids, size_t n_ids, bitnet_error *err)
{
    double start = bnet_now_ms();
    const bitnet_generate_options *o = g->o;
    bitnet_session *s = g->session;
    bitnet_status st = BITNET_OK;
    s->chooser = o->max_tokens ? g->sampler : NULL;
    if (o->min_tokens && !forbid_ends(g, true))
        st = bnet_no_memory(err, "forbidden tokens");
    if (st == BITNET_OK)
        st = prefill(g, ids, n_ids, err);
    if (st == BITNET_OK) {
        bnet_stream_begin(&s->stream, s->engine->tokenizer, o->stops, o->n_stops, o->print_special,
                          begins_text(s->engine, ids, n_ids));
        st = decode(g, start, err);
    }
    if (o->min_tokens)
        forbid_ends(g, false); /* also where it ended sooner */
    s->chooser = NULL;
    return st;
}

bitnet_status bitnet_generate(bitnet_session *session, bitnet_sampler *sampler, const int32_t *ids,
                              size_t n_ids, const bitnet_generate_options *options,
                              bitnet_generate_result *result, bitnet_error *err)
{
    bitnet_generate_result scratch, *r = result ? result : &scratch;
    *r = (bitnet_generate_result){.last_id = -1};
    if (!session || !sampler)
        return bnet_fail(err, BITNET_ARGUMENT, "generate: session and sampler must not be NULL");
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    bitnet_status st = bnet_options_copy(&o, sizeof o, options, "generate options", err);
    if (st == BITNET_OK)
        st = check(session, sampler, n_ids, &o, err);
    if (st == BITNET_OK)
        st = bnet_session_enter(session, "generate", err);
    if (st != BITNET_OK)
        return st;
    st = bnet_sampler_enter(sampler, session, "generate", err);
    generation g = {session, sampler, &o, r};
    if (st == BITNET_OK)
        st = generate(&g, ids, n_ids, err);
    bnet_sampler_leave(sampler, session);
    return bnet_session_leave(session, st);
}
