/* native.c - POST /v1/inference and its older form /inference: a text continued, with what it took.
 */
#include "jobs/clock.h"
#include "ask/json_text.h"
#include "native/native_read.h"

void srv_native_inference(srv_exchange *x);
void srv_native_legacy(srv_exchange *x);

typedef struct outcome {
    srv_textbuf text;
    srv_usage usage;
    bitnet_error error;
    size_t n_together; /* continuations that were computed when the first token came */
} outcome;

static void note_company(outcome *o, const srv_answer *answer)
{
    srv_load load;
    if (o->n_together)
        return;
    srv_scheduler_load(srv_answer_model(answer)->scheduler, &load);
    o->n_together = load.n_active ? load.n_active : 1;
}

static void collect(srv_answer *answer, outcome *o)
{
    srv_delta d;
    while (srv_answer_next(answer, &d)) {
        if (d.kind == SRV_DELTA_TEXT) {
            note_company(o, answer);
            srv_textbuf_add(&o->text, d.text, d.n_text);
        }
        if (d.kind != SRV_DELTA_END)
            continue;
        o->usage = d.event->usage;
        o->error = d.event->error;
        break;
    }
}

/* A deadline of the request's own is no shutdown. */
static void tell_failure(srv_exchange *x, const bitnet_error *err, double took_ms,
                         double timeout_ms)
{
    if (err->status != BITNET_CANCELLED || timeout_ms <= 0 || took_ms < timeout_ms) {
        srv_fail_with(x, err);
        return;
    }
    srv_reply_header(x, "x-should-retry", "false");
    srv_fail(x, 408, "timeout", NULL, "the request took longer than the %.0f ms it was given",
             timeout_ms);
}

static json_t *basics(const outcome *o)
{
    double ms = o->usage.prompt_ms + o->usage.decode_ms;
    return json_pack("{s:o, s:I, s:f, s:f}", "text", srv_json_buf(&o->text), "tokens_generated",
                     (json_int_t)o->usage.n_generated, "inference_time_ms", ms, "tokens_per_second",
                     ms > 0 ? (double)o->usage.n_generated / ms * 1e3 : 0.0);
}

/* There are no fixed batches: every step has whoever is there. So the batch is named after the
 * request, and its size is how many were computed together when the first token came. */
static json_t *reply_of(const srv_exchange *x, const srv_answer *answer, const outcome *o,
                        bool legacy)
{
    const srv_model *model = srv_answer_model(answer);
    json_t *reply = basics(o);
    if (!reply || legacy)
        return reply;
    json_t *more =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:f, s:I, s:I}", "model", model->name, "device_used",
                  model->device, "quantization_type", model->info->weight_type, "batch_id",
                  srv_request_id(x), "batch_size", (json_int_t)o->n_together, "queue_time_ms",
                  o->usage.queue_ms, "prompt_tokens", (json_int_t)o->usage.n_prompt,
                  "cached_tokens", (json_int_t)o->usage.n_cached);
    if (json_object_update(reply, more)) {
        json_decref(reply);
        reply = NULL;
    }
    json_decref(more);
    return reply;
}

static void serve(srv_exchange *x, bool legacy)
{
    srv_inference r;
    srv_answer *answer = NULL;
    outcome o = {.n_together = 0};
    double began = srv_clock_ms();
    if (srv_inference_read(x, 0, &r) && srv_ask_start(x, &r.ask, &answer)) {
        srv_answer_tell_receipt(x, answer);
        collect(answer, &o);
        if (o.error.status != BITNET_OK)
            tell_failure(x, &o.error, srv_clock_ms() - began, r.timeout_ms);
        else
            srv_reply_json(x, 200, reply_of(x, answer, &o, legacy));
        srv_answer_close(answer);
    }
    srv_textbuf_free(&o.text);
    srv_inference_free(&r);
}

void srv_native_inference(srv_exchange *x)
{
    serve(x, false);
}

void srv_native_legacy(srv_exchange *x)
{
    serve(x, true);
}
