/* ask.c - from a request in no API's words to a job of a scheduler. */
#include "ask/ask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask/ask_impl.h"
#include "http/ids.h"
#include "http/short_memory.h"
#include "server.h"

void srv_ask_init(srv_ask *a)
{
    *a = (srv_ask){.want_receipt = true, .random_seed = true};
    srv_job_options_init(&a->job);
    bitnet_sampler_options_init(&a->job.sampling);
    a->job.n_choices = 1;
    a->job.max_tokens = SIZE_MAX;
    a->job.n_top = -1;
    a->job.priority = SRV_NORMAL;
}

void srv_ask_free(srv_ask *a)
{
    free(a->owned_stops);
    free(a->owned_biases);
    json_decref(a->owned_kwargs);
    a->owned_kwargs = NULL;
    a->owned_stops = NULL;
    a->owned_biases = NULL;
}

/* ---- the model ---- */

static bool use_model(srv_exchange *x, const srv_ask *a, srv_model **out)
{
    bitnet_error err = {BITNET_OK, ""};
    bitnet_status st = srv_model_use(srv_server_of(x)->models, a->model, srv_gone_fn, x, out, &err);
    if (st == BITNET_NOT_AVAILABLE)
        srv_fail(x, 404, "model_not_found", "model", "%s", err.message);
    else if (st != BITNET_OK)
        srv_fail_with(x, &err);
    return st == BITNET_OK;
}

/* ---- the job ---- */

static bool check_biases(srv_exchange *x, const srv_model *model, const srv_job_options *o)
{
    for (size_t i = 0; i < o->n_biases; i++)
        if (o->biases[i].id < 0 || o->biases[i].id >= model->info->n_vocab) {
            srv_fail(x, 400, "invalid_value", "logit_bias",
                     "logit_bias: token %d is not in the vocabulary, which has 0 to %d",
                     (int)o->biases[i].id, model->info->n_vocab - 1);
            return false;
        }
    return true;
}

static bool check_choices(srv_exchange *x, const srv_model *model, const srv_job_options *o)
{
    srv_load load;
    if (o->n_choices == 1)
        return true;
    srv_scheduler_load(model->scheduler, &load);
    if (o->n_choices <= load.max_active)
        return true;
    srv_fail(x, 400, "invalid_value", "n",
             "n is %d: it must be from 1 to %d, the answers that are computed at a time "
             "(--parallel)",
             o->n_choices, load.max_active);
    return false;
}

/* Without a number from the client, as many tokens as the server and the context allow. */
static size_t most_tokens(const srv_exchange *x, const srv_model *model, size_t wanted,
                          size_t n_prompt)
{
    size_t most = srv_server_of(x)->config->max_tokens;
    size_t room =
        model->n_ctx > 0 && (size_t)model->n_ctx > n_prompt ? (size_t)model->n_ctx - n_prompt : 1;
    if (wanted != SIZE_MAX)
        return wanted;
    return most && most < room ? most : room;
}

/* The answer has a form of its own, in which a stop string would be part of a value. */
static bool has_form(const srv_ask *a, const srv_prompt *p)
{
    return p->schema || a->schema || a->json_object;
}

static void fill_job(srv_exchange *x, const srv_ask *a, const srv_model *model, const srv_prompt *p,
                     srv_job_options *o)
{
    double left = srv_time_left(x);
    *o = a->job;
    o->ids = p->ids;
    o->n_ids = p->n_ids;
    o->n_stops = has_form(a, p) ? 0 : a->job.n_stops;
    o->marks = p->split.style != SRV_TOOLS_NONE || p->split.reasoning;
    o->max_tokens = most_tokens(x, model, a->job.max_tokens, p->n_ids);
    o->any_length = a->job.max_tokens == SIZE_MAX;
    if (o->min_tokens > o->max_tokens)
        o->min_tokens = o->max_tokens;
    if (!a->penalise_prompt)
        o->sampling.penalty_from = p->n_ids;
    if (a->random_seed)
        o->sampling.seed = srv_random();
    o->scope = srv_scope(x);
    if (isfinite(left) && (o->deadline_ms <= 0 || left < o->deadline_ms))
        o->deadline_ms = left > 1 ? left : 1;
}

static void tell_busy(srv_exchange *x, int seconds)
{
    char wait[16];
    snprintf(wait, sizeof wait, "%d", seconds);
    srv_reply_header(x, "Retry-After", wait);
    srv_fail(x, 503, "server_busy", NULL, "too many requests are waiting: try again in %s s", wait);
}

static void tell_refusal(srv_exchange *x, const srv_model *model, const bitnet_error *err)
{
    if (err->status == BITNET_AGAIN)
        tell_busy(x, srv_scheduler_wait(model->scheduler));
    else if (err->status == BITNET_CANCELLED)
        srv_fail(x, 503, "shutting_down", NULL, "the server is shutting down");
    else if (err->status == BITNET_CONTEXT)
        srv_fail(x, 400, "context_length_exceeded", NULL, "%s", err->message);
    else
        srv_fail_with(x, err);
}

static bool submit(srv_exchange *x, const srv_ask *a, srv_model *model, srv_prompt *p,
                   srv_answer **out)
{
    srv_job_options o;
    srv_job *job = NULL;
    char receipt[40];
    bitnet_error err = {BITNET_OK, ""};
    srv_grammar *grammar = NULL;
    srv_server *server = srv_server_of(x);
    fill_job(x, a, model, p, &o);
    if (!check_choices(x, model, &o) || !check_biases(x, model, &o) ||
        !srv_ask_grammar(x, model, a, p->schema, &grammar))
        return false;
    o.grammar = grammar ? srv_grammar_of(grammar) : NULL;
    bool wanted = a->want_receipt && server->config->receipts && server->receipts &&
                  o.kind == SRV_GENERATE && o.max_tokens > 0;
    if (wanted && srv_receipts_new(receipt))
        o.receipt_id = receipt;
    if (srv_memory_short()) { /* something of the request may be missing */
        srv_grammars_release(model->grammars, grammar);
        return srv_no_room(x);
    }
    bitnet_status st = srv_job_submit(model->scheduler, &o, &job, &err);
    if (st == BITNET_OK && o.receipt_id) /* a refused job drives out nobody's receipt */
        srv_receipts_keep(server->receipts, receipt);
    if (st != BITNET_OK)
        tell_refusal(x, model, &err);
    else if (!(*out = srv_answer_open(x, model, p, job, &o)))
        srv_no_room(x);
    srv_grammars_release(model->grammars, grammar);
    return *out != NULL;
}

bool srv_ask_start(srv_exchange *x, srv_ask *a, srv_answer **out)
{
    srv_model *model = NULL;
    srv_prompt prompt = {0};
    *out = NULL;
    if (!use_model(x, a, &model))
        return false;
    bool good = srv_prompt_make(x, model, a, &prompt) && srv_prompt_check(x, model, a, &prompt) &&
                submit(x, a, model, &prompt, out);
    if (!good) {
        srv_prompt_free(&prompt);
        srv_model_release(srv_server_of(x)->models, model);
    }
    return good;
}
