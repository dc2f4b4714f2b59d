/* traffic.c - who asks when: streams that ask again once they are answered, or requests that begin
 * at a rate whatever the server does, and what is measured of their answers. */
#include "traffic.h"

#include <math.h>
#include <poll.h>
#include <time.h>

enum { STREAMS_MAX = 4096, ID_LOW = 300, N_IDS = 180 };

/* ---- figures ---- */

void figures_add(figures *f, double x)
{
    if (f->n == f->cap) {
        f->cap = 2 * f->cap + 256;
        f->data = xrealloc(f->data, f->cap * sizeof *f->data);
    }
    f->data[f->n++] = x;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double figures_share(figures *f, double q)
{
    if (!f->n)
        return 0;
    qsort(f->data, f->n, sizeof *f->data, by_size);
    double at = ceil(q * (double)f->n) - 1;
    return f->data[at < 0 ? 0 : (size_t)at];
}

void figures_free(figures *f)
{
    free(f->data);
    *f = (figures){0};
}

void traffic_free(traffic_result *r)
{
    figures_free(&r->first_ms);
    figures_free(&r->gap_ms);
    figures_free(&r->during_ms);
}

/* ---- requests ---- */

typedef struct token_time {
    double ms;
    size_t stream;
} token_time;

typedef struct traffic {
    const traffic_plan *plan;
    traffic_result *out;
    talk *talks;
    struct pollfd *polls;
    size_t n_talks;
    size_t n_begun; /* requests, without the extra one */
    double start_ms, first_token_ms, last_ms;
    double extra_begun_ms, extra_first_ms; /* 0: not yet */
    token_time *times;                     /* of every token, for the time all were together */
    size_t n_times, n_times_room;
} traffic;

/* A body whose prompt has so many tokens; two numbers make two prompts that differ in their first
 * tokens. */
static void make_body(const traffic_plan *p, int n_prompt, int n_new, size_t number, buffer *b)
{
    size_t digits = p->same_prompt ? 7 : number;
    uint64_t mix = digits + 1;
    text_puts(b, "{\"prompt\":[");
    for (int i = 0; i < n_prompt; i++) {
        mix = mix * 6364136223846793005u + 1442695040888963407u;
        uint64_t id = i == 0 ? (uint64_t)p->seed : i < 6 ? digits : mix >> 33;
        text_printf(b, "%s%d", i ? "," : "", ID_LOW + (int)(id % N_IDS));
        digits = i == 0 ? digits : digits / N_IDS;
    }
    text_printf(b,
                "],\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
                "\"stream_options\":{\"include_usage\":true}",
                n_new);
    if (p->server->model)
        text_printf(b, ",\"model\":\"%s\"", p->server->model);
    text_puts(b, "}");
}

static bool begin(traffic *t, talk *k, bool extra, double due_ms)
{
    buffer body = {0};
    const traffic_plan *p = t->plan;
    if (extra)
        make_body(p, p->extra_prompt, 1, 1000003, &body);
    else
        make_body(p, p->n_prompt, p->n_new, t->n_begun, &body);
    k->extra = extra;
    k->used = true;
    k->due_ms = due_ms;
    k->first_ms = k->last_ms = 0;
    bool ok = talk_begin(k, p->server, body.data);
    free_buffer(&body);
    if (!extra)
        t->n_begun++;
    if (!t->start_ms)
        t->start_ms = now_ms();
    return ok;
}

static bool may_begin(const traffic *t)
{
    const traffic_plan *p = t->plan;
    if (p->extra_prompt && t->extra_begun_ms && /* what the others were there for has been seen */
        (t->extra_first_ms || t->talks[t->n_talks - 1].state == TALK_IDLE))
        return false;
    return (!p->n_requests || t->n_begun < p->n_requests) &&
           (!p->seconds || !t->start_ms || now_ms() < t->start_ms + p->seconds * 1e3);
}

static talk *idle(traffic *t)
{
    for (size_t i = 0; i < t->n_talks; i++)
        if (t->talks[i].state == TALK_IDLE)
            return &t->talks[i];
    return NULL;
}

static bool is_busy(const traffic *t)
{
    for (size_t i = 0; i < t->n_talks; i++)
        if (t->talks[i].state != TALK_IDLE)
            return true;
    return false;
}

static bool running_streams(const traffic *t, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < t->n_talks; i++)
        *n += t->talks[i].state != TALK_IDLE && !t->talks[i].extra;
    return *n > 0;
}

/* ---- what comes back ---- */

static void note_time(traffic *t, double now, size_t stream, size_t n)
{
    for (; n; n--) {
        if (t->n_times == t->n_times_room) {
            t->n_times_room = 2 * t->n_times_room + 1024;
            t->times = xrealloc(t->times, t->n_times_room * sizeof *t->times);
        }
        t->times[t->n_times++] = (token_time){now, stream};
    }
}

/* Tokens came. Those of one packet share the time since the one before. */
static void took(traffic *t, talk *k, size_t n)
{
    double now = now_ms();
    traffic_result *r = t->out;
    if (!t->first_token_ms)
        t->first_token_ms = now;
    if (!k->first_ms) {
        k->first_ms = now;
        if (k->extra)
            t->extra_first_ms = now;
        else
            figures_add(&r->first_ms, now - k->due_ms);
    } else if (!k->extra && (!t->extra_first_ms || k->last_ms < t->extra_first_ms)) {
        figures *f = t->extra_begun_ms ? &r->during_ms : &r->gap_ms;
        for (size_t i = 0; i < n; i++)
            figures_add(f, (now - k->last_ms) / (double)n);
    }
    k->last_ms = t->last_ms = now;
    k->n_events += n;
    if (!k->extra)
        note_time(t, now, (size_t)(k - t->talks), n);
}

static void ended(traffic *t, talk *k, const talk_news *news)
{
    traffic_result *r = t->out;
    size_t n = k->n_usage >= 0 ? (size_t)k->n_usage : k->n_events;
    if (news->failed) {
        r->failed_status = r->n_failed ? r->failed_status : k->status;
        r->n_failed++;
        return;
    }
    r->n_answered++;
    if (!k->extra)
        r->n_tokens += n;
}

static void take_news(traffic *t)
{
    for (size_t i = 0; i < t->n_talks; i++) {
        talk *k = &t->talks[i];
        if (k->state == TALK_IDLE || !t->polls[i].revents)
            continue;
        talk_news news = talk_go(k);
        if (news.n_tokens)
            took(t, k, news.n_tokens);
        if (news.ended)
            ended(t, k, &news);
    }
}

/* ---- loops ---- */

/* A stream asks again once it is answered. Failures do not come in a flood. */
static bool begin_closed(traffic *t)
{
    size_t n;
    bool ok = true;
    for (running_streams(t, &n); ok && n < (size_t)t->plan->n_streams && may_begin(t); n++) {
        talk *k = idle(t);
        ok = k && begin(t, k, false, now_ms());
    }
    return ok;
}

/* Requests that are due begin; late ones count from when they were due. */
static bool begin_open(traffic *t)
{
    double gap = 1e3 / t->plan->rate, start = t->start_ms ? t->start_ms : now_ms();
    bool ok = true;
    while (ok && may_begin(t) && now_ms() >= start + (double)t->n_begun * gap) {
        talk *k = idle(t);
        if (!k)
            break; /* all connections wait: it begins when one is free, and counts from its time */
        ok = begin(t, k, false, start + (double)t->n_begun * gap);
    }
    return ok;
}

/* Each of the others has enough tokens by then for what is usual to be known. */
static bool begin_extra(traffic *t)
{
    enum { USUAL = 16 };
    const traffic_plan *p = t->plan;
    if (!p->extra_prompt || t->extra_begun_ms || !t->first_token_ms ||
        now_ms() < t->first_token_ms + p->extra_after * 1e3 ||
        t->out->gap_ms.n < USUAL * (size_t)p->n_streams)
        return true;
    t->extra_begun_ms = now_ms();
    return begin(t, &t->talks[t->n_talks - 1], true, t->extra_begun_ms);
}

static void wait_for_news(traffic *t)
{
    for (size_t i = 0; i < t->n_talks; i++)
        t->polls[i] = (struct pollfd){t->talks[i].state == TALK_IDLE ? -1 : t->talks[i].fd,
                                      talk_events(&t->talks[i]), 0};
    poll(t->polls, t->n_talks, t->plan->rate > 0 || t->plan->extra_prompt ? 1 : 50);
}

static int no_answer(const traffic_server *at, int status)
{
    if (status == 401)
        return fail(EXIT_IO, "%s:%s: %s: --api-key KEY, or BITNET_API_KEY", at->host, at->port,
                    at->key ? "the server does not know this API key"
                            : "the server wants an API key");
    if (status)
        return fail(EXIT_IO, "%s:%s: all requests fail with status %d", at->host, at->port, status);
    return fail(EXIT_IO, "%s:%s: no connection; is a server there?", at->host, at->port);
}

static int loop(traffic *t)
{
    const traffic_plan *p = t->plan;
    while (!interrupted()) {
        bool ok = p->rate > 0 ? begin_open(t) : begin_closed(t);
        ok = ok && begin_extra(t);
        if (!ok || (t->out->n_failed > 20 && !t->out->n_answered))
            return no_answer(p->server, t->out->failed_status);
        if (!is_busy(t) && !may_begin(t))
            return EXIT_OK;
        wait_for_news(t);
        take_news(t);
    }
    return interrupted();
}

/* ---- afterwards ---- */

/* While every stream generates: from the last first token to the first last one. */
static void find_together(traffic *t)
{
    double from = 0, to = INFINITY;
    for (size_t i = 0; i < t->n_talks; i++) {
        if (!t->talks[i].used || t->talks[i].extra)
            continue;
        from = fmax(from, t->talks[i].first_ms);
        to = fmin(to, t->talks[i].last_ms);
    }
    for (size_t i = 0; i < t->n_times; i++)
        t->out->n_together += t->times[i].ms > from && t->times[i].ms <= to;
    t->out->together_s = to > from && isfinite(to) ? (to - from) / 1e3 : 0;
}

static double cpu_now(void)
{
    struct timespec s;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &s);
    return (double)s.tv_sec + (double)s.tv_nsec / 1e9;
}

int traffic_run(const traffic_plan *plan, traffic_result *out)
{
    traffic t = {.plan = plan, .out = out};
    double cpu = cpu_now();
    *out = (traffic_result){0};
    t.n_talks = (plan->rate > 0 ? STREAMS_MAX : (size_t)plan->n_streams) + (plan->extra_prompt > 0);
    t.talks = xmalloc(t.n_talks * sizeof *t.talks);
    t.polls = xmalloc(t.n_talks * sizeof *t.polls);
    for (size_t i = 0; i < t.n_talks; i++)
        t.talks[i] = (talk){.fd = -1};
    int rc = loop(&t);
    find_together(&t);
    out->seconds = (t.last_ms - t.start_ms) / 1e3;
    out->extra_ms = t.extra_first_ms ? t.extra_first_ms - t.extra_begun_ms : 0;
    out->cpu_seconds = cpu_now() - cpu;
    for (size_t i = 0; i < t.n_talks; i++)
        talk_close(&t.talks[i]);
    free(t.talks);
    free(t.polls);
    free(t.times);
    return rc;
}
