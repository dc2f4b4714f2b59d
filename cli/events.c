/* events.c - tokens and their log-probabilities in JSON. Hides what a token event looks like.
 *
 * The log-probability is the model's own: of the logits as they are, before penalties, temperature
 * and whatever else the sampler does. */
#include "events.h"

#include <jansson.h>
#include <stdlib.h>

void top_tokens(const float *logits, int n_vocab, top_token *top, size_t n)
{
    size_t have = 0;
    for (int32_t id = 0; id < n_vocab && n; id++) {
        if (have == n && !(logits[id] > top[n - 1].logit))
            continue;
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && logits[id] > top[at - 1].logit; at--)
            top[at] = top[at - 1];
        top[at] = (top_token){id, logits[id]};
    }
}

const char *finish_word(bitnet_finish finish, const loaded *m)
{
    switch (finish) {
    case BITNET_FINISH_STOP_ID:
    case BITNET_FINISH_STOP_STRING:
        return "stop";
    case BITNET_FINISH_LENGTH:
    case BITNET_FINISH_CONTEXT:
        return "length";
    case BITNET_FINISH_CANCELLED:
        return m->timed_out ? "timeout" : "cancelled";
    default:
        return bitnet_finish_text(finish);
    }
}

/* ---- log-probabilities ---- */

static bool wants_logprobs(const loaded *m)
{
    return opt_given(m->args, OPT_LOGPROBS);
}

static json_t *token_text(const loaded *m, int32_t id)
{
    size_t n = 0;
    const char *bytes = bitnet_token_bytes(m->engine, id, &n);
    return j_text(bytes ? bytes : "", bytes ? n : 0);
}

static void add_logprobs(const loaded *m, json_t *event, int32_t id)
{
    const float *logits = bitnet_session_logits(m->session);
    size_t n = (size_t)opt_int(m->args, OPT_LOGPROBS);
    bitnet_logprob chosen = {.id = id}, *top = xmalloc((n + 1) * sizeof *top);
    if (logits &&
        bitnet_logprobs(logits, m->info->n_vocab, &chosen, 1, top, n, NULL) == BITNET_OK) {
        json_t *list = json_array();
        for (size_t i = 0; i < n && top[i].id >= 0; i++)
            json_array_append_new(list, json_pack("{s:i, s:o, s:o}", "id", top[i].id, "text",
                                                  token_text(m, top[i].id), "logprob",
                                                  j_num(top[i].logprob)));
        json_object_set_new(event, "logprob", j_num(chosen.logprob));
        json_object_set_new(event, "top_logprobs", list);
    }
    free(top);
}

/* ---- a reply ---- */

int events_check(const args *a)
{
    if (opt_given(a, OPT_LOGPROBS) && !opt_json(a))
        return fail(EXIT_USAGE,
                    "%s: log-probabilities are part of JSON; add --json or --format jsonl",
                    a->values[OPT_LOGPROBS].origin);
    return EXIT_OK;
}

void events_begin(reply_events *e, const loaded *m, bool trims)
{
    bool keeps = wants_logprobs(m) && !opt_jsonl(m->args);
    *e = (reply_events){.m = m, .trims = trims, .position = SIZE_MAX};
    e->steps = keeps ? json_array() : NULL;
}

void events_trim(reply_events *e, const char **bytes, size_t *n)
{
    while (e->trims && !e->begun && *n && (**bytes == ' ' || **bytes == '\n'))
        ++*bytes, --*n;
    e->begun = e->begun || *n > 0;
}

/* A generation that is cancelled may tell what it held back with the token it has told already. */
static bool told_before(reply_events *e)
{
    size_t position = bitnet_session_position(e->m->session);
    bool again = position == e->position;
    e->position = position;
    return again;
}

bool events_token(reply_events *e, const char *bytes, size_t n, int32_t id)
{
    if (!e->steps && !opt_jsonl(e->m->args))
        return true;
    bool again = told_before(e), ok = true;
    json_t *event = json_pack("{s:s, s:o, s:o}", "event", "token", "text", j_text(bytes, n), "id",
                              again ? json_null() : json_integer(id));
    if (wants_logprobs(e->m) && !again)
        add_logprobs(e->m, event, id);
    if (!e->steps) {
        ok = j_print(event);
    } else if (!again) {
        json_object_del(event, "event");
        json_array_append(e->steps, event);
    }
    json_decref(event);
    return ok;
}

void events_finish(reply_events *e, json_t *reply)
{
    if (e->steps && reply)
        json_object_set(reply, "logprobs", e->steps);
    json_decref(e->steps);
    e->steps = NULL;
}
