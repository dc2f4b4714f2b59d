/* fuzz_requests.c - any body through the readers of Anthropic's, Ollama's and the server's own API,
 * and through what comes after them for all: messages in one form, tools.
 *
 * Input: byte 0 chooses the reader (modulo 5), the rest is the body. What must hold: no crash, no
 * leak; a reader that says no has told the client so once, with a status and a message, and one
 * that says yes has not. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "anthropic/anthropic_read.h"
#include "ask/ask_impl.h"
#include "http/json_limits.h"
#include "native/native_read.h"
#include "ollama/ollama_read.h"
#include "server.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_requests: %s\n", #what);                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* ---- stand-ins for HTTP, the models and the rest of ask ---- */

struct srv_exchange {
    json_t *body;
    int n_told, status;
};

static const srv_config config = {.max_tokens = 100, .max_choices = 4};
static srv_server server = {.config = &config};

srv_server *srv_server_of(const srv_exchange *x)
{
    (void)x;
    return &server;
}

json_t *srv_body_json(srv_exchange *x)
{
    if (!x->body)
        srv_fail(x, 400, "invalid_json", NULL, "the body is no JSON object");
    return x->body;
}

/* Texts of JSON have the depth that the server would let in, nothing else. */
bool srv_json_admit(srv_exchange *x, const char *field, const char *text, size_t n)
{
    if (srv_json_measure(text, n).depth <= 64)
        return true;
    srv_fail(x, 400, "json_too_deep", field, "%s: too deep", field);
    return false;
}

void srv_fail(srv_exchange *x, int status, const char *code, const char *param, const char *format,
              ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    (void)param;
    CHECK(code && *code && message[0]);
    x->n_told++;
    x->status = status;
}

void srv_reply_header(srv_exchange *x, const char *name, const char *value)
{
    CHECK(x && *name && *value);
}

const char *srv_request_id(const srv_exchange *x)
{
    (void)x;
    return "req_0";
}

bool srv_no_room(srv_exchange *x)
{
    srv_fail(x, 503, "out_of_memory", NULL, "out of memory");
    return false;
}

bool srv_models_at(srv_models *m, size_t i, srv_model_row *out)
{
    (void)m;
    *out = (srv_model_row){0};
    snprintf(out->name, sizeof out->name, "%s", i ? "other:latest" : "nano");
    return i < 2;
}

void srv_ask_init(srv_ask *a)
{
    *a = (srv_ask){.random_seed = true};
    bitnet_sampler_options_init(&a->job.sampling);
    a->job.n_choices = 1;
}

void srv_ask_free(srv_ask *a)
{
    free(a->owned_stops);
    free(a->owned_biases);
}

/* ---- what is looked at ---- */

static void go_on(srv_exchange *x, const srv_ask *a)
{
    srv_tool_plan plan = {0};
    if (!a->messages)
        return;
    json_t *plain = srv_messages_plain(x, a);
    CHECK(plain ? x->n_told == 0 : x->n_told == 1);
    if (plain) {
        bool ok = srv_tool_plan_read(x, a, &plan);
        CHECK(x->n_told == (ok ? 0 : 1));
        srv_tool_plan_free(&plan);
    }
    json_decref(plain);
}

static void check(srv_exchange *x, bool ok, const srv_ask *a)
{
    CHECK(x->n_told == (ok ? 0 : 1));
    CHECK(ok || x->status == 400);
    if (ok) {
        CHECK(a->job.max_tokens == 0 || a->job.max_tokens <= config.max_tokens);
        CHECK(a->job.n_stops <= 16);
        go_on(x, a);
    }
}

static void read_body(srv_exchange *x, unsigned which)
{
    srv_anthropic anthropic;
    srv_ollama ollama;
    srv_inference native;
    if (which < 2) {
        check(x, srv_anthropic_read(x, which == 1, &anthropic), &anthropic.ask);
        srv_anthropic_free(&anthropic);
    } else if (which < 4) {
        bool ok = srv_ollama_read(x, which == 2, &ollama);
        check(x, ok, ok && ollama.nothing ? &(srv_ask){0} : &ollama.ask);
        srv_ollama_free(&ollama);
    } else {
        check(x, srv_inference_read(x, 30, &native), &native.ask);
        srv_inference_free(&native);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    srv_exchange x = {0};
    if (n_bytes == 0)
        return 0;
    x.body = json_loadb((const char *)data + 1, n_bytes - 1, 0, NULL);
    if (x.body && !json_is_object(x.body)) {
        json_decref(x.body);
        x.body = NULL;
    }
    read_body(&x, data[0] % 5);
    json_decref(x.body);
    return 0;
}
