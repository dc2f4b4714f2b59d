/* test_torture_server.c - a request of every API with each allocation failing once: it is answered
 * as it is with memory, or with an error in the words of its API. Never with less: neither the
 * prompt nor the reply may lack a part in silence.
 *
 * From the body to the reply everything is the server's; models, scheduler and what tells the time
 * or draws ids are stand-ins. */
#include "torture/torture.h"

#include <jansson.h>
#include <unistd.h>

#include "http/ids.h"
#include "http/short_memory.h"
#include "http/local.h"
#include "jobs/grammars.h"
#include "server.h"

/* ---- stand-ins ---- */

void srv_id(char out[SRV_ID_MAX], const char *prefix)
{
    snprintf(out, SRV_ID_MAX, "%s0", prefix);
}

uint64_t srv_random(void)
{
    return 7;
}

static srv_model the_model = {.name = "nano", .device = "cpu", .summary = "", .n_ctx = 2048};

bitnet_status srv_model_use(srv_models *m, const char *name, bitnet_cancel_fn cancel, void *user,
                            srv_model **out, bitnet_error *e)
{
    (void)m, (void)name, (void)cancel, (void)user, (void)e;
    *out = &the_model;
    return BITNET_OK;
}

void srv_model_release(srv_models *m, srv_model *model)
{
    (void)m;
    assert_ptr_equal(model, &the_model);
}

srv_model *srv_model_peek(srv_models *m, const char *name)
{
    return m || strcmp(name, "nano") ? NULL : &the_model;
}

void srv_model_looked(srv_models *m, srv_model *model)
{
    (void)m;
    assert_ptr_equal(model, &the_model);
}

bool srv_models_at(srv_models *m, size_t i, srv_model_row *out)
{
    *out = (srv_model_row){.name = "nano", .path = "", .state = SRV_LOADED, .why = ""};
    return !m && i == 0;
}

/* What was asked of the scheduler, as one number. */
static uint64_t asked;

static void add_asked(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        asked = (asked ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
}

struct srv_job {
    srv_job_options o;
    int choice;
    size_t n_said, n_prompt;
    bool told, over;
    bitnet_logprob top[2];
    float vector[8];
};

void srv_job_options_init(srv_job_options *o)
{
    *o = (srv_job_options){.n_choices = 1};
}

bitnet_status srv_job_submit(srv_scheduler *s, const srv_job_options *o, srv_job **out,
                             bitnet_error *e)
{
    (void)s;
    add_asked(o->ids, o->n_ids * sizeof *o->ids);
    for (size_t i = 0; i < o->n_stops; i++)
        add_asked(o->stops[i], strlen(o->stops[i]));
    for (size_t i = 0; i < o->n_biases; i++)
        add_asked(&o->biases[i].id, sizeof o->biases[i].id);
    add_asked(&o->max_tokens, sizeof o->max_tokens);
    add_asked(&o->sampling.temperature, sizeof o->sampling.temperature);
    add_asked(o->grammar ? "g" : "-", 1);
    *out = calloc(1, sizeof **out);
    if (!*out) {
        *e = (bitnet_error){BITNET_MEMORY, "no memory for a job"};
        return BITNET_MEMORY;
    }
    (*out)->o = *o;
    (*out)->n_prompt = o->prompt_logprobs ? 1 : o->n_ids;
    return BITNET_OK;
}

static void fill(srv_job *job, srv_event *e)
{
    for (int i = 0; i < 2; i++)
        job->top[i] = (bitnet_logprob){300 + i, -0.5 - i};
    e->logprob = -0.5;
    e->top = job->top;
    e->n_top = job->o.n_top < 0 ? 0 : 2;
}

/* Each choice says a text, then all is over. */
bool srv_job_next(srv_job *job, double wait_ms, srv_event *e)
{
    static const char said[] = "<think>\nI see.\n</think>\n\nA \"fox\".";
    (void)wait_ms;
    *e = (srv_event){.kind = SRV_END, .text = "", .choice = job->choice};
    e->usage = (srv_usage){.n_prompt = job->o.n_ids, .n_generated = 2};
    if (job->over)
        return false;
    if (job->o.kind == SRV_EMBED && !job->told) {
        job->told = true;
        job->vector[3] = 2;
        e->kind = SRV_VECTOR;
        e->vector = job->vector;
        e->n_vector = 8;
    } else if (job->o.kind == SRV_GENERATE && job->n_prompt < job->o.n_ids) {
        e->kind = SRV_PROMPT;
        e->index = job->n_prompt++;
        e->id = 5;
        fill(job, e);
    } else if (job->o.kind == SRV_GENERATE && job->choice < job->o.n_choices && said[job->n_said]) {
        e->kind = SRV_TOKEN;
        e->index = job->n_said;
        e->text = said + job->n_said++;
        e->n_text = 1;
        e->id = (int32_t)*e->text;
        fill(job, e);
    } else if (job->o.kind == SRV_GENERATE && job->choice < job->o.n_choices) {
        e->kind = SRV_FINISH;
        e->finish = BITNET_FINISH_EOS;
        job->choice++;
        job->n_said = 0;
    } else {
        job->over = true;
    }
    return true;
}

void srv_job_listen(srv_job *job, srv_bell *bell)
{
    (void)job, (void)bell;
}

void srv_job_cancel(srv_job *job)
{
    (void)job;
}

void srv_job_release(srv_job *job)
{
    free(job);
}

int srv_scheduler_wait(srv_scheduler *s)
{
    (void)s;
    return 1;
}

/* ---- stand-ins that no request here reaches ---- */

void srv_scheduler_load(srv_scheduler *s, srv_load *out)
{
    (void)s;
    *out = (srv_load){.max_active = 8};
}

size_t srv_scheduler_slots(srv_scheduler *s, srv_slot *out, size_t cap)
{
    (void)s, (void)out, (void)cap;
    return 0;
}

bitnet_status srv_models_add(srv_models *m, const char *path, const char *name,
                             bitnet_cancel_fn cancel, void *user, bitnet_error *e)
{
    (void)m, (void)path, (void)name, (void)cancel, (void)user, (void)e;
    return BITNET_ERROR;
}

bitnet_status srv_models_remove(srv_models *m, const char *name, bitnet_error *e)
{
    (void)m, (void)name, (void)e;
    return BITNET_ERROR;
}

bitnet_status srv_models_rest(srv_models *m, const char *name, bitnet_error *e)
{
    (void)m, (void)name, (void)e;
    return BITNET_ERROR;
}

/* ---- requests ---- */

#define LINE "a line of many words that \\\"end\\\" in an escape \\n"
#define LONG LINE LINE LINE LINE LINE LINE /* buffers of readers must grow for it */
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"Looks."   \
    "\","                                                                                          \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"at\":{\"type\":\"string\"}}}}}]"
#define TURNS                                                                                      \
    "\"messages\":[{\"role\":\"system\",\"content\":\"Be "                                         \
    "kind.\"},{\"role\":\"user\",\"content\":[{"                                                   \
    "\"type\":\"text\",\"text\":\"one\"},{\"type\":\"text\",\"text\":\"two\"}]},{\"role\":"        \
    "\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","         \
    "\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"at\\\": \\\"fox\\\"}\"}}]},{\"role\":"   \
    "\"tool\",\"tool_call_id\":\"c1\",\"content\":\"" LONG                                         \
    "\"},{\"role\":\"user\",\"content\":\"and?"                                                    \
    "\"}]"

typedef struct request {
    const char *path, *body;
} request;

static const request requests[] = {
    {"/v1/chat/completions",
     "{" TURNS "," TOOLS ",\"n\":2,\"logprobs\":true,\"top_logprobs\":2,"
     "\"stop\":[\"xx\",\"yy\"],\"logit_bias\":{\"7\":1,\"8\":-100},\"max_tokens\":50,"
     "\"chat_template_kwargs\":{\"enable_thinking\":true}}"},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"response_format\":{\"type\":"
     "\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{\"type\":\"object\","
     "\"properties\":"
     "{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"]}}}}"},
    {"/v1/chat/completions", "{" TURNS "," TOOLS ",\"tool_choice\":\"required\"}"},
    {"/v1/completions",
     "{\"prompt\":[\"one fox\",\"two\"],\"echo\":true,\"logprobs\":2,\"max_tokens\":50,\"n\":2}"},
    {"/v1/completions", "{\"prompt\":[5,6,7,8],\"echo\":true,\"logprobs\":1,\"max_tokens\":3}"},
    {"/v1/responses",
     "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"one\"}]},{"
     "\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"look\",\"arguments\":\"{}\"},{"
     "\"type\":"
     "\"function_call_output\",\"call_id\":\"c\",\"output\":\"red\"}],\"instructions\":\"Be "
     "kind.\","
     "\"metadata\":{\"a\":\"b\"},\"max_output_tokens\":40}"},
    {"/v1/embeddings", "{\"input\":[\"one\",\"two fox\",\"three\"]}"},
    {"/v1/messages",
     "{\"model\":\"nano\",\"max_tokens\":40,\"system\":[{\"type\":\"text\",\"text\":\"Be kind.\"}],"
     "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"}]},{"
     "\"role\":"
     "\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},{"
     "\"type\":\"text\",\"text\":\"I "
     "look.\"},{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"look\","
     "\"input\":{\"at\":\"fox\"}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
     "\"tool_use_id\":\"t\",\"is_error\":true,\"content\":[{\"type\":\"image\"},{\"type\":"
     "\"search_result\",\"title\":\"a\",\"content\":[{\"type\":\"text\",\"text\":\"red\"}]},{"
     "\"type\":\"document\",\"source\":{\"type\":\"text\",\"data\":\"b\"}},{\"type\":"
     "\"tool_reference\",\"tool_name\":\"c\"}]},{\"type\":\"text\",\"text\":\"and?\"}]}],"
     "\"tools\":[{"
     "\"name\":\"look\",\"description\":\"Looks.\",\"input_schema\":{\"type\":\"object\"}}],"
     "\"tool_choice\":{\"type\":\"auto\"},\"stop_sequences\":[\"xx\"],\"thinking\":{\"type\":"
     "\"enabled\",\"budget_tokens\":99999999999999999999}}"},
    {"/v1/messages/count_tokens",
     "{\"model\":\"nano\",\"messages\":[{\"role\":\"user\",\"content\":\"one\"},{\"role\":"
     "\"assistant\",\"content\":\"two\"},{\"role\":\"user\",\"content\":\"three\"}]}"},
    {"/api/chat",
     "{\"model\":\"nano\",\"stream\":false,\"think\":true,\"messages\":[{\"role\":\"system\","
     "\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"assistant\","
     "\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"look\",\"arguments\":{\"at\":"
     "\"fox\"}}"
     "}]},{\"role\":\"tool\",\"tool_name\":\"look\",\"content\":\"red\"}],\"options\":{\"num_"
     "predict\":"
     "30,\"stop\":[\"xx\"],\"repeat_penalty\":1.1,\"seed\":3}}"},
    {"/api/generate",
     "{\"model\":\"nano\",\"stream\":false,\"prompt\":\"one\",\"system\":\"Be kind.\",\"format\":"
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}}"},
    {"/api/embed", "{\"model\":\"nano\",\"input\":[\"one\",\"two fox\"],\"dimensions\":4}"},
    {"/api/embeddings", "{\"model\":\"nano\",\"prompt\":\"one fox\"}"},
    {"/v1/inference", "{\"prompt\":\"one fox\",\"max_tokens\":20,\"stop\":\"xx\"}"},
    {"/tokenize", "{\"content\":\"one fox\",\"text\":\"one fox\",\"with_pieces\":true}"},
    {"/detokenize", "{\"tokens\":[5,6,7]}"},
    {"/apply-template", "{" TURNS "}"},
};

/* ---- one of them ---- */

typedef struct scene {
    const request *r;
    srv_local *local;
    uint64_t asked;
    char reply[1 << 16]; /* with memory; runs of digits are one '#' */
} scene;

/* Times are in replies, and ids of requests. */
static void mask(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    for (; *text && n + 1 < cap; text++) {
        bool digit = *text >= '0' && *text <= '9';
        if (strncmp(text, "req_", 4) == 0)
            text += strcspn(text, "\"") - 1, digit = true;
        if (!digit || n == 0 || out[n - 1] != '#')
            out[n++] = digit ? '#' : *text;
    }
    out[n] = '\0';
}

static bitnet_status no_memory(bitnet_error *e)
{
    *e = (bitnet_error){BITNET_MEMORY, "no memory"};
    return BITNET_MEMORY;
}

static bitnet_status call(void *user, bitnet_error *e)
{
    static char masked[1 << 16];
    scene *s = user;
    srv_local_reply reply;
    asked = 0xcbf29ce484222325u;
    if (!srv_local_call(s->local, "POST", s->r->path, s->r->body, strlen(s->r->body), &reply))
        return no_memory(e);
    mask(reply.body, masked, sizeof masked);
    if (reply.status == 200 && !s->reply[0]) {
        memcpy(s->reply, masked, sizeof masked);
        s->asked = asked;
    }
    size_t same = 0;
    while (masked[same] && masked[same] == s->reply[same])
        same++;
    if (reply.status == 200 && masked[same] != s->reply[same])
        fail_msg("%s: allocation %ld: the reply has ...%.200s, not ...%.200s", s->r->path,
                 atomic_load(&fail_at), masked + same - (same < 40 ? same : 40),
                 s->reply + same - (same < 40 ? same : 40));
    if (reply.status == 200 && asked != s->asked)
        fail_msg("%s: allocation %ld: another question was asked", s->r->path,
                 atomic_load(&fail_at));
    if (reply.status != 200 && reply.status != 500 && reply.status != 503)
        fail_msg("%s: allocation %ld: status %d: %s", s->r->path, atomic_load(&fail_at),
                 reply.status, reply.body);
    bool good = reply.status == 200, tells = strstr(reply.body, "error") != NULL;
    free(reply.body);
    assert_true(good || tells);
    return good ? BITNET_OK : no_memory(e);
}

static void every_api(bool onward)
{
    static const srv_config config = {.max_tokens = 100,
                                      .max_choices = 4,
                                      .max_body = 1 << 20,
                                      .max_depth = 32,
                                      .max_grammar = 1 << 16};
    srv_server server = {.config = &config};
    server.metrics = srv_metrics_open();
    srv_local *local = srv_local_open(&server);
    assert_non_null(local);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        static scene s;
        s = (scene){.r = &requests[i], .local = local};
        print_message("%-28s", s.r->path);
        torture(call, &s, onward, 1);
    }
    srv_local_close(local);
    srv_metrics_close(server.metrics);
}

static void each_fails(void **state)
{
    (void)state;
    every_api(false);
}

static void all_fail(void **state)
{
    (void)state;
    if (INTERPOSE_SANITIZED)
        skip(); /* the server's own memory does not fail there */
    every_api(true);
}

/* A template that shows tools and calls, as Hermes does, and thinks where it is told to. */
static const char template[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.reasoning_content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ c.function.name }}\", "
    "\"arguments\": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endfor %}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% if enable_thinking %}<think>{% endif %}";

static void put(FILE *f, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        fputc((int)(v >> 8 * i & 255), f);
}

/* The nano model with this template: one more pair in front of its others, of a multiple of 32
 * bytes, so that everything behind it stays aligned. */
static void write_model(const char *path)
{
    static const char key[] = "tokenizer.chat_template";
    static char data[1 << 20];
    FILE *from = fopen(TEST_SOURCE_DIR "/models/nano.gguf", "rb"), *to = fopen(path, "wb");
    assert_true(from && to);
    size_t n = strlen(template), n_pair = 8 + strlen(key) + 4 + 8 + n,
           n_pad = (32 - n_pair % 32) % 32;
    uint64_t n_pairs = 0;
    assert_int_equal(fread(data, 1, 24, from), 24);
    memcpy(&n_pairs, data + 16, 8);
    fwrite(data, 1, 16, to);
    put(to, n_pairs + 1, 8);
    put(to, strlen(key), 8);
    fputs(key, to);
    put(to, 8, 4); /* a text */
    put(to, n + n_pad, 8);
    fprintf(to, "%s%*s", template, (int)n_pad, "");
    for (size_t k; (k = fread(data, 1, sizeof data, from)) > 0;) {
        char *old = memmem(data, k, key, strlen(key)); /* its own gets another name */
        if (old)
            *old = 'T';
        assert_int_equal(fwrite(data, 1, k, to), k);
    }
    fclose(from);
    assert_int_equal(fclose(to), 0);
}

static bitnet_runtime *runtime;

static int open_model(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-torture-XXXXXX";
    bitnet_engine_options o;
    bitnet_engine_options_init(&o);
    o.vocab_only = true;
    close(mkstemp(path));
    write_model(path);
    srv_memory_watch();
    bitnet_error e = {0};
    bool good = bitnet_runtime_open(NULL, &runtime, &e) == BITNET_OK &&
                bitnet_engine_open(runtime, path, &o, &the_model.engine, &e) == BITNET_OK;
    unlink(path);
    if (!good)
        fail_msg("%s", e.message);
    the_model.info = bitnet_engine_model(the_model.engine);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    bitnet_engine_close(the_model.engine);
    bitnet_runtime_close(runtime);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fails),
        cmocka_unit_test(all_fail),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
