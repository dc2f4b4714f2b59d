/* native_stream.c - POST /v1/inference/stream: tokens as server-sent events, one for each, then
 * `complete` or `error`; a comment after every second of silence. */
#include <string.h>

#include "jobs/clock.h"
#include "ask/json_text.h"
#include "native/native_read.h"
#include "http/refuse.h"

void srv_native_stream(srv_exchange *x);

static const double DEFAULT_TIMEOUT_S = 30, SILENCE_MS = 1000;

typedef struct stream {
    srv_exchange *x;
    const srv_inference *r;
    double began_ms;
    size_t n_tokens;
    const char *reason;
    bool alive;
} stream;

static void tell_token(stream *s, const srv_delta *d)
{
    size_t position = d->has_token ? s->n_tokens : s->n_tokens ? s->n_tokens - 1 : 0;
    if (!d->has_token && d->n_text == 0)
        return;
    s->n_tokens += d->has_token;
    s->alive = srv_stream_event(
        s->x, "token",
        json_pack("{s:o, s:o, s:f, s:I}", "token", srv_json_text(d->text, d->n_text), "token_id",
                  d->has_token ? json_integer(d->event->id) : json_null(), "cumulative_time_ms",
                  srv_clock_ms() - s->began_ms, "position", (json_int_t)position));
}

static void tell_complete(stream *s)
{
    double ms = srv_clock_ms() - s->began_ms;
    srv_stream_event(s->x, "complete",
                     json_pack("{s:I, s:f, s:f, s:b, s:s}", "total_tokens", (json_int_t)s->n_tokens,
                               "total_time_ms", ms, "tokens_per_second",
                               ms > 0 ? (double)s->n_tokens / ms * 1e3 : 0.0, "completed_normally",
                               true, "completion_reason", s->reason ? s->reason : "eos"));
}

static const struct {
    bitnet_status status;
    const char *type, *hint;
} kinds[] = {
    {BITNET_CANCELLED, "cancelled", "send the request again: the server was told to end it"},
    {BITNET_MEMORY, "out_of_memory", "send the request again later, or a shorter prompt"},
    {BITNET_CONTEXT, "context_full", "send a shorter prompt, or ask for fewer tokens"},
    {BITNET_ERROR, "internal", "send the request again; the server's log says what failed"},
};

static void tell_error(stream *s, const bitnet_error *err)
{
    double ms = srv_clock_ms() - s->began_ms;
    size_t k = 0, last = sizeof kinds / sizeof *kinds - 1;
    while (k < last && kinds[k].status != err->status)
        k++;
    const char *type = kinds[k].type, *hint = kinds[k].hint;
    const char *text =
        s->r->detailed_errors ? srv_failure_text(err) : bitnet_status_text(err->status);
    if (err->status == BITNET_CANCELLED && s->r->timeout_ms > 0 && ms >= s->r->timeout_ms) {
        type = text = "timeout";
        hint = "give it more time (timeout_seconds), or ask for fewer tokens (max_tokens)";
    }
    srv_stream_event(s->x, "error",
                     json_pack("{s:s, s:o, s:[s], s:I}", "error_type", type, "message",
                               srv_json_text(text, strlen(text)), "recovery_hints", hint,
                               "tokens_before_error", (json_int_t)s->n_tokens));
}

static void wait_aloud(stream *s, srv_answer *answer)
{
    static const char comment[] = ": keep-alive\n\n";
    while (s->alive && !srv_answer_ready(answer, SILENCE_MS))
        s->alive = srv_stream_write(s->x, comment, sizeof comment - 1);
}

static void run(stream *s, srv_answer *answer)
{
    srv_delta d;
    srv_stream_begin(s->x, SRV_EVENT_STREAM);
    for (;;) {
        wait_aloud(s, answer);
        if (!s->alive || !srv_answer_next(answer, &d))
            break;
        if (d.kind == SRV_DELTA_TEXT)
            tell_token(s, &d);
        if (d.kind == SRV_DELTA_FINISH)
            s->reason = bitnet_finish_text(d.event->finish);
        if (d.kind != SRV_DELTA_END)
            continue;
        if (d.event->error.status == BITNET_OK)
            tell_complete(s);
        else
            tell_error(s, &d.event->error);
        break;
    }
    srv_stream_end(s->x);
}

void srv_native_stream(srv_exchange *x)
{
    srv_inference r;
    srv_answer *answer = NULL;
    stream s = {.x = x, .r = &r, .began_ms = srv_clock_ms(), .alive = true};
    if (srv_inference_read(x, DEFAULT_TIMEOUT_S, &r) && srv_ask_start(x, &r.ask, &answer)) {
        srv_answer_tell_receipt(x, answer);
        run(&s, answer);
        srv_answer_close(answer);
    }
    srv_inference_free(&r);
}
