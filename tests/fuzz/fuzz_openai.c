/* fuzz_openai.c - any body through the handlers of the OpenAI APIs, to the last byte of the reply.
 *
 * Input: byte 0 chooses the handler (bits 0-1) and how the job ends (bits 2-4: well, at its length,
 * by an error), then a NUL-terminated text, which is what the model says, then the body. HTTP, the
 * models and the scheduler are stand-ins; the tokenizer is the nano model's. What must hold: no
 * crash, no leak, exactly one reply, every event valid JSON; an answer is read to its end, also
 * where nothing comes for a while. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/json_limits.h"
#include "openai/openai.h"
#include "server.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "fuzz_openai: %s\n", #what);                                           \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* ---- a stand-in for HTTP ---- */

struct srv_exchange {
    json_t *body;
    int n_replies;
    bool streaming;
};

static const srv_config config = {.max_tokens = 64,
                                  .max_choices = 4,
                                  .max_prompt_tokens = 200,
                                  .max_grammar = 4096,
                                  .receipts = true};
static int teller; /* stands for one */
static srv_server server = {.config = &config, .tellers = (srv_tellers *)&teller};

srv_server *srv_server_of(const srv_exchange *x)
{
    (void)x;
    return &server;
}

json_t *srv_body_json(srv_exchange *x)
{
    if (!json_is_object(x->body)) {
        srv_fail(x, 400, "invalid_json", NULL, "the body is no JSON object");
        return NULL;
    }
    return x->body;
}

static void replied(srv_exchange *x)
{
    x->n_replies++;
    CHECK(x->n_replies == 1 && !x->streaming);
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
    char message[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    CHECK(status >= 400 && *code && message[0] && (!param || *param));
    replied(x);
}

bitnet_status srv_reply_charge(srv_exchange *x, size_t n_bytes, bitnet_error *err)
{
    (void)x, (void)n_bytes, (void)err;
    return BITNET_OK;
}

size_t srv_work_charge(srv_exchange *x, size_t n_bytes)
{
    return x ? n_bytes : 0;
}

void srv_work_done(srv_exchange *x, size_t n_bytes)
{
    (void)x, (void)n_bytes;
}

void srv_reply_sent(srv_exchange *x, size_t n_bytes)
{
    (void)x, (void)n_bytes;
}

bool srv_is_timeout(const srv_exchange *x, const bitnet_error *err)
{
    (void)x, (void)err;
    return false;
}

void srv_fail_with(srv_exchange *x, const bitnet_error *err)
{
    srv_fail(x, 500, "error", NULL, "%s", err->message);
}

static void check_json(json_t *value)
{
    char *text = value ? json_dumps(value, 0) : NULL;
    CHECK(text);
    free(text);
    json_decref(value);
}

void srv_reply_json(srv_exchange *x, int status, json_t *value)
{
    CHECK(status == 200);
    replied(x);
    check_json(value);
}

void srv_stream_begin(srv_exchange *x, const char *type)
{
    CHECK(strcmp(type, SRV_EVENT_STREAM) == 0);
    replied(x);
    x->streaming = true;
}

bool srv_stream_write(srv_exchange *x, const void *bytes, size_t n)
{
    CHECK(x->streaming && bytes && n);
    return true;
}

bool srv_stream_event(srv_exchange *x, const char *name, json_t *value)
{
    CHECK(x->streaming && (!name || *name));
    check_json(value);
    return true;
}

void srv_stream_end(srv_exchange *x)
{
    CHECK(x->streaming);
    x->streaming = false;
}

void srv_stream_gather(srv_exchange *x, bool gathers)
{
    (void)gathers;
    CHECK(x);
}

bool srv_stream_flush(srv_exchange *x)
{
    return x != NULL;
}

bool srv_stream_room(srv_exchange *x)
{
    return x != NULL;
}

/* Tells on the same thread. */
bool srv_tellers_run(srv_tellers *t, const srv_telling *what)
{
    CHECK(t);
    what->listen(what->user, NULL);
    while (what->tell(what->user))
        ;
    return true;
}

void srv_job_listen(srv_job *job, srv_bell *bell)
{
    CHECK(job && !bell);
}

void srv_reply_header(srv_exchange *x, const char *name, const char *value)
{
    CHECK(x && *name && *value);
}

const char *srv_path_part(const srv_exchange *x)
{
    return x ? "nano" : "";
}

uint64_t srv_scope(const srv_exchange *x)
{
    return x != NULL;
}

bool srv_gone(const srv_exchange *x)
{
    return !x;
}

bool srv_gone_fn(void *x)
{
    return !x;
}

double srv_time_left(const srv_exchange *x)
{
    return x ? 1000 : 0;
}

void srv_count_tokens(srv_exchange *x, size_t n_prompt, size_t n_generated)
{
    CHECK(x && n_prompt + n_generated < 100000);
}

/* ---- stand-ins for figures and receipts ---- */

void srv_metrics_first_token(srv_metrics *m, double seconds)
{
    CHECK(!m && seconds >= 0);
}

void srv_metrics_token(srv_metrics *m, double seconds)
{
    CHECK(!m && seconds >= 0);
}

void srv_metrics_inference(srv_metrics *m, double seconds)
{
    CHECK(!m && seconds >= 0);
}

bool srv_receipts_new(char id[40])
{
    memcpy(id, "receipt", 8);
    return true;
}

void srv_receipts_keep(srv_receipts *r, const char *id)
{
    (void)r, (void)id;
}

/* ---- stand-ins for the models: one, with a tokenizer and no weights ---- */

static srv_model the_model = {.name = "nano", .device = "cpu", .summary = "", .n_ctx = 256};

static void open_model(void)
{
    bitnet_runtime *runtime = NULL;
    bitnet_engine_options o;
    bitnet_engine_options_init(&o);
    o.vocab_only = true;
    CHECK(bitnet_runtime_open(NULL, &runtime, NULL) == BITNET_OK);
    CHECK(bitnet_engine_open(runtime, TEST_SOURCE_DIR "/models/nano.gguf", &o, &the_model.engine,
                             NULL) == BITNET_OK);
    the_model.info = bitnet_engine_model(the_model.engine);
}

bitnet_status srv_model_use(srv_models *m, const char *name, bitnet_cancel_fn cancel, void *user,
                            srv_model **out, bitnet_error *err)
{
    (void)m, (void)cancel, (void)user;
    *out = &the_model;
    if (!name || strcmp(name, "none") != 0)
        return BITNET_OK;
    *err = (bitnet_error){BITNET_NOT_AVAILABLE, "there is no such model"};
    return BITNET_NOT_AVAILABLE;
}

void srv_model_release(srv_models *m, srv_model *model)
{
    CHECK(!m && model == &the_model);
}

srv_model *srv_model_peek(srv_models *m, const char *name)
{
    return m || strcmp(name, "nano") ? NULL : &the_model;
}

void srv_model_looked(srv_models *m, srv_model *model)
{
    (void)m;
    CHECK(model == &the_model);
}

bool srv_models_at(srv_models *m, size_t i, srv_model_row *out)
{
    *out = (srv_model_row){.name = "nano", .path = "", .state = SRV_LOADED, .why = ""};
    return !m && i == 0;
}

/* ---- a stand-in for the scheduler: every choice says the text of the input, byte by byte ---- */

static const char *said;
static int ending, n_asked, n_unfinished;

struct srv_job {
    srv_job_options o;
    size_t n_prompt, n_said; /* events so far */
    int choice;
    bool finished, over;
    bitnet_logprob top[4];
    float vector[64];
    char byte[2];
};

void srv_job_options_init(srv_job_options *o)
{
    *o = (srv_job_options){.n_choices = 1};
}

void srv_scheduler_load(srv_scheduler *s, srv_load *out)
{
    (void)s;
    *out = (srv_load){.max_active = 8};
}

bitnet_status srv_job_submit(srv_scheduler *s, const srv_job_options *o, srv_job **out,
                             bitnet_error *err)
{
    CHECK(!s && o->n_ids && o->n_choices >= 1 && o->n_choices <= 4 && o->max_tokens <= 256);
    for (size_t i = 0; i < o->n_stops; i++)
        CHECK(strlen(o->stops[i]) <= BITNET_STOP_MAX);
    if (ending == 7) {
        *err = (bitnet_error){BITNET_AGAIN, "full"};
        return BITNET_AGAIN;
    }
    *out = calloc(1, sizeof **out);
    CHECK(*out);
    (*out)->o = *o;
    (*out)->n_prompt = o->prompt_logprobs ? 1 : o->n_ids;
    return BITNET_OK;
}

static void fill_top(srv_job *job, srv_event *e)
{
    for (int i = 0; i < 4; i++)
        job->top[i] = (bitnet_logprob){i == 3 ? -1 : 300 + i, -0.5 - i};
    e->logprob = -0.5;
    e->top = job->top;
    e->n_top = job->o.n_top < 0 ? 0 : job->o.n_top > 4 ? 4 : (size_t)job->o.n_top;
}

static void say(srv_job *job, srv_event *e)
{
    job->byte[0] = said[job->n_said];
    *e = (srv_event){.kind = SRV_TOKEN, .choice = job->choice, .index = job->n_said};
    e->text = job->byte;
    e->n_text = 1;
    e->id = (int32_t)((unsigned char)job->byte[0] % 200);
    job->n_said++;
    fill_top(job, e);
}

static void finish(srv_job *job, srv_event *e)
{
    *e = (srv_event){.kind = SRV_FINISH, .choice = job->choice, .text = ""};
    e->finish = ending == 1 ? BITNET_FINISH_LENGTH : BITNET_FINISH_EOS;
    job->choice++;
    job->n_said = 0;
}

static void end(srv_job *job, srv_event *e)
{
    *e = (srv_event){.kind = SRV_END, .text = ""};
    e->usage = (srv_usage){.n_prompt = 3, .n_generated = 2};
    if (ending == 2)
        e->error = (bitnet_error){BITNET_ERROR, "the device is gone"};
    job->over = true;
}

bool srv_job_next(srv_job *job, double wait_ms, srv_event *e)
{
    CHECK(wait_ms >= 0 && !job->over);
    *e = (srv_event){.kind = SRV_END, .text = ""};
    if (n_asked++ % 3 == 2) /* nothing came in time, and the event before is gone */
        return false;
    if (job->o.kind == SRV_EMBED && !job->finished) {
        *e = (srv_event){.kind = SRV_VECTOR, .text = "", .vector = job->vector, .n_vector = 64};
        job->vector[3] = 2.0f;
        job->finished = true;
    } else if (job->o.kind == SRV_EMBED || ending == 3) {
        end(job, e);
    } else if (job->n_prompt < job->o.n_ids) {
        *e = (srv_event){.kind = SRV_PROMPT, .text = "", .index = job->n_prompt++, .id = 5};
        fill_top(job, e);
    } else if (job->choice < job->o.n_choices && said[job->n_said] &&
               job->n_said < job->o.max_tokens) {
        say(job, e);
    } else if (job->choice < job->o.n_choices && job->o.max_tokens) {
        finish(job, e);
    } else {
        end(job, e);
    }
    return true;
}

void srv_job_cancel(srv_job *job)
{
    CHECK(job);
}

void srv_job_release(srv_job *job)
{
    n_unfinished += !job->over;
    free(job);
}

int srv_scheduler_wait(srv_scheduler *s)
{
    return s ? 2 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static void (*const handlers[])(srv_exchange *) = {srv_openai_chat, srv_openai_completions,
                                                       srv_openai_responses, srv_openai_embeddings};
    srv_exchange x = {0};
    const uint8_t *nul = n_bytes > 1 ? memchr(data + 1, 0, n_bytes - 1) : NULL;
    if (!nul)
        return 0;
    if (!the_model.engine)
        open_model();
    said = (const char *)data + 1;
    ending = data[0] >> 2 & 7;
    x.body = json_loadb((const char *)nul + 1, n_bytes - (size_t)(nul + 1 - data),
                        JSON_REJECT_DUPLICATES, NULL);
    n_asked = n_unfinished = 0;
    handlers[data[0] & 3](&x);
    CHECK(x.n_replies == 1 && !x.streaming);
    CHECK(n_unfinished == 0 || data[0] % 2 == 1); /* lists of prompts end with the first failure */
    json_decref(x.body);
    return 0;
}
