/* test_scheduler_pace.c - the pace on a simulated clock: machines whose steps have a fixed cost, a
 * cost for each row and prompt token, and noise. While a long prompt is read, the others' longest
 * gaps stay within 5 times their usual one, and the prompt takes at most 1.5 times its time alone.
 */
#include "test.h"

#include "jobs/scheduler_pace.h"

enum { OTHERS = 8, NEW = 48, SHORT = 8, LONG = 4000, STEP_MOST = 512, GAPS = 200000 };

/* What a step costs: row_ms for each of its rows and step_ms, however few they are; for prompts
 * pass_ms and token_ms each, and more the further back they look; all of it up to `noise` longer.
 * Beside rows prompts may need mixed_ms more, and each token less than alone. */
typedef struct machine {
    const char *name;
    double step_ms, row_ms, pass_ms, token_ms, back_ms, noise, mixed_ms, less;
    double held_up, by; /* so many of all steps take longer by that share; 0: twice as long */
} machine;

static const machine machines[] = {
    {"GPU, prompts in a pass of their own", 0.45, 0.09, 2.1, 0.0037, 0.0000004, 0.03, 0, 0, 0, 0},
    {"GPU, a cheaper pass", 0.35, 0.05, 0.5, 0.006, 0.0000004, 0.03, 0, 0, 0, 0},
    {"16 cores, AMX", 6.5, 2.2, 0.5, 0.63, 0.00003, 0.10, 0, 0, 0, 0},
    {"2 cores, i8mm", 25, 8.0, 1.0, 6.2, 0.0004, 0.05, 0, 0, 0, 0},
    {"2 cores, i8mm, which look far back", 20, 6.2, 5.0, 5.2, 0.0035, 0.07, 22, 0, 0, 0},
    {"2 cores, dotprod, tokens cost what rows do", 2, 11, 0, 11, 0.0004, 0.05, 0, 0, 0, 0},
    {"16 cores, other kernels for more than 8 rows", 6, 3, 0.5, 0.55, 0.0006, 0.05, 38, 0.35, 0, 0},
    {"2 cores, AMX, uneven", 20, 3.5, 2.0, 2.2, 0.0021, 0.12, 0, 0, 0.03, 0.2},
    {"a small model on 16 cores", 0.25, 0.1, 0.05, 0.03, 0.000004, 0.12, 0, 0, 0, 0},
    {"a small model on 2 cores", 1.2, 0.35, 0.1, 0.55, 0.00005, 0.10, 0, 0, 0, 0},
};

typedef struct stream {
    size_t n_prompt, n_done, n_made; /* prompt tokens, those read, tokens made */
    double last_ms;                  /* when its last token came; 0: none did */
} stream;

typedef struct world {
    const machine *m;
    srv_pace pace;
    double now;
    uint64_t random;
    stream streams[OTHERS + 1]; /* the last: with the long prompt, if there is one */
    size_t n_streams;
    double *gaps;
    size_t n_gaps;
} world;

static double draw(world *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(w->random >> 40) / (double)(1 << 24);
}

static double cost(world *w, size_t n_rows, size_t n_prompt, double at)
{
    const machine *m = w->m;
    double n = (double)n_prompt, ms = n_rows ? m->step_ms + m->row_ms * (double)n_rows : 0;
    if (n_prompt)
        ms += m->pass_ms + n * (m->token_ms + m->back_ms * at) * (n_rows ? 1 - m->less : 1) +
              (n_rows ? m->mixed_ms : 0);
    return ms * (1 + m->noise * draw(w)) * (draw(w) < m->held_up ? 1 + (m->by > 0 ? m->by : 1) : 1);
}

static bool reads(const stream *s)
{
    return s->n_done < s->n_prompt;
}

static size_t left(const stream *s)
{
    return s->n_prompt - s->n_done;
}

static size_t give(world *w, size_t i, size_t room, size_t *pieces)
{
    size_t n = reads(&w->streams[i]) ? left(&w->streams[i]) - pieces[i] : 0;
    n = n < room ? n : room;
    pieces[i] += n;
    return room - n;
}

/* As the scheduler shares its room: half of it for who is done soonest, the rest for who came
 * first, here the last stream. Returns how many tokens were given; *at: where they stand on
 * average. */
static size_t share(world *w, size_t room, size_t *pieces, double *at)
{
    size_t first = room - room / 2, rest = room / 2, given = 0;
    double sum = 0;
    for (size_t i = 0; i < w->n_streams; i++) /* the short ones stand first */
        first = give(w, i, first, pieces);
    for (size_t i = w->n_streams; i-- > 0;)
        rest = give(w, i, rest + first, pieces), first = 0;
    for (size_t i = 0; i < w->n_streams; i++) {
        given += pieces[i];
        sum += (double)pieces[i] * ((double)w->streams[i].n_done + (double)pieces[i] / 2);
    }
    *at = given ? sum / (double)given : 0;
    return given;
}

static double where(const world *w)
{
    for (size_t i = w->n_streams; i-- > 0;)
        if (reads(&w->streams[i]))
            return (double)w->streams[i].n_done;
    return 0;
}

static void token(world *w, stream *s)
{
    if (s->last_ms > 0 && w->gaps && w->n_gaps < GAPS)
        w->gaps[w->n_gaps++] = w->now - s->last_ms;
    s->last_ms = w->now;
    if (++s->n_made == NEW) /* it asks again at once */
        *s = (stream){.n_prompt = SHORT};
}

static void step(world *w)
{
    size_t pieces[OTHERS + 1] = {0}, n_rows = 0;
    bool row[OTHERS + 1];
    double at = 0;
    for (size_t i = 0; i < w->n_streams; i++)
        n_rows += row[i] = !reads(&w->streams[i]);
    size_t room = srv_pace_room(&w->pace, n_rows, STEP_MOST - n_rows, where(w));
    assert_true(room <= STEP_MOST - n_rows);
    size_t n_prompt = share(w, room, pieces, &at);
    double ms = cost(w, n_rows, n_prompt, at);
    w->now += ms;
    srv_pace_note(&w->pace, n_rows, n_prompt, at, ms);
    for (size_t i = 0; i < w->n_streams; i++) {
        w->streams[i].n_done += pieces[i];
        if (row[i] || (pieces[i] && !reads(&w->streams[i])))
            token(w, &w->streams[i]);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(world *w, double q)
{
    assert_true(w->n_gaps > 10);
    qsort(w->gaps, w->n_gaps, sizeof *w->gaps, by_size);
    return w->gaps[(size_t)(q * (double)(w->n_gaps - 1) + 0.999)];
}

/* The long prompt by itself; how long it took. */
static double alone(world *w)
{
    double begun = w->now;
    w->streams[0] = (stream){.n_prompt = LONG};
    w->n_streams = 1;
    while (reads(&w->streams[0]))
        step(w);
    return w->now - begun;
}

static void others(world *w, size_t n, double ms)
{
    double end = w->now + ms;
    w->n_streams = n;
    for (size_t i = 0; i < n; i++)
        w->streams[i] = (stream){.n_prompt = SHORT};
    while (w->now < end)
        step(w);
}

typedef struct outcome {
    double gap, prompt; /* p99 by the median without the prompt; time by that alone */
} outcome;

/* What `bench --serve` does: the prompt alone, n others for two seconds, the prompt among them. */
static outcome measure(const machine *m, size_t n, uint64_t seed)
{
    outcome out;
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    *w = (world){.m = m, .random = seed, .gaps = malloc(GAPS * sizeof(double))};
    others(w, 1, 20 * cost(w, 1, 0, 0));
    double by_itself = alone(w);
    w->n_gaps = 0;
    others(w, n, 2000 + 200 * cost(w, n, 0, 0));
    double usual = quantile(w, 0.5), begun = w->now;
    w->n_gaps = 0;
    w->streams[w->n_streams++] = (stream){.n_prompt = LONG};
    while (reads(&w->streams[n]))
        step(w);
    out = (outcome){quantile(w, 0.99) / usual, (w->now - begun) / by_itself};
    free(w->gaps);
    free(w);
    return out;
}

static void both_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        for (uint64_t seed = 1; seed <= 5; seed++) {
            outcome o = measure(&machines[i], OTHERS, seed);
            if (seed == 1 || o.gap > 5 || o.prompt > 1.5)
                print_message("%s, seed %d: gap %.2f, prompt %.2f\n", machines[i].name, (int)seed,
                              o.gap, o.prompt);
            assert_true(o.gap <= 5 && o.prompt <= 1.5);
        }
}

/* Where a pass for prompts alone takes longer than the others may wait, a prompt is not read drop
 * by drop: gaps of 10 ms are noticed by nobody. */
static void dear_pass(void **state)
{
    (void)state;
    static const machine dear = {"", 0.40, 0.08, 2.1, 0.0037, 0.0000004, 0.03, 0, 0, 0, 0};
    outcome o = measure(&dear, 1, 1);
    print_message("one other, a dear pass: gap %.2f (%.2f ms), prompt %.2f\n", o.gap, o.gap * 0.49,
                  o.prompt);
    assert_true(o.gap * 0.49 <= 10.5 && o.prompt <= 1.65);
}

/* Neighbours hold up every seventh step. The others notice that in any case; the prompt must not be
 * read in crumbs for it. */
static void neighbours(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        machine m = machines[i];
        double prompt = 0;
        m.held_up = 1.0 / 7;
        m.by = 0;
        for (uint64_t seed = 1; seed <= 20; seed++)
            prompt += measure(&m, OTHERS, seed).prompt / 20;
        print_message("%s, held up: prompt %.2f\n", m.name, prompt);
        assert_true(prompt <= 1.7);
    }
}

/* A machine that is slowed down by others for a while recovers. */
static void after_a_storm(void **state)
{
    (void)state;
    static const machine calm = {"", 6.5, 2.2, 0.5, 0.63, 0.00003, 0.05, 0, 0, 0, 0};
    machine stormy = calm;
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    *w = (world){.m = &stormy, .random = 1};
    alone(w);
    others(w, OTHERS, 2000);
    stormy.token_ms *= 4;
    w->streams[w->n_streams++] = (stream){.n_prompt = LONG};
    for (int i = 0; i < 40; i++)
        step(w);
    assert_in_range(srv_pace_room(&w->pace, OTHERS, 504, where(w)), 8, 50);
    stormy.token_ms /= 4;
    for (int i = 0; i < 40; i++)
        step(w);
    assert_in_range(srv_pace_room(&w->pace, OTHERS, 504, where(w)), 80, 140);
    free(w);
}

/* A slow machine reads all but its first piece in the shortest ones, and knows what a token costs
 * far behind the first; one piece that was held up does not change that. */
static void far_tokens_are_dear(void **state)
{
    (void)state;
    static const machine slow = {"", 20, 6.2, 5.0, 5.2, 0.0035, 0.03, 22, 0, 0, 0};
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    *w = (world){.m = &slow, .random = 1};
    alone(w);
    others(w, OTHERS, 2000);
    w->streams[w->n_streams++] = (stream){.n_prompt = LONG};
    while (w->streams[OTHERS].n_done < 3400)
        step(w);
    size_t room = srv_pace_room(&w->pace, OTHERS, 504, 3500); /* tokens of 17 ms, steps of 70 */
    assert_in_range(room, 10, 16);
    srv_pace_note(&w->pace, 0, 128, 3500, 60000);
    assert_in_range(srv_pace_room(&w->pace, OTHERS, 504, 3500), room - 1, room + 1);
    free(w);
}

/* Nothing is known: one step shows what the others are used to, then a small piece. */
static void first_steps(void **state)
{
    (void)state;
    srv_pace p = {0};
    assert_int_equal(srv_pace_room(&p, 0, 504, 0), 504);
    assert_int_equal(srv_pace_room(&p, 4, 504, 0), 0);
    srv_pace_note(&p, 4, 0, 0, 10);
    size_t first = srv_pace_room(&p, 4, 504, 0);
    assert_in_range(first, 1, 64);
    assert_int_equal(srv_pace_room(&p, 4, 5, 0), 5);
    srv_pace_note(&p, 4, first, 0, 5000); /* far too slow: it goes on, with little */
    assert_in_range(srv_pace_room(&p, 4, 504, 0), 1, first);
    for (int i = 0; i < 64; i++)
        srv_pace_note(&p, 4, 8, 0, 20);
    assert_int_equal(srv_pace_room(&p, 4, 504, 0), 0); /* what they are used to is measured again */
    srv_pace_note(&p, 4, 0, 0, 10);
    assert_true(srv_pace_room(&p, 4, 504, 0) > 0);
}

/* Whatever clocks say, a room is a number of tokens. */
static void odd_times(void **state)
{
    (void)state;
    static const double odd[] = {0, -1, 1e-9, 1e12};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            srv_pace p = {0};
            srv_pace_note(&p, 3, 0, 0, odd[i]);
            srv_pace_note(&p, 0, 128, 64, odd[k]);
            for (int n = 0; n < 20; n++) {
                size_t room = srv_pace_room(&p, 3, 509, 0);
                assert_in_range(room, 1, 509);
                srv_pace_note(&p, 3, room, 64, odd[(i + k) % 4]);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_bounds),         cmocka_unit_test(dear_pass),
        cmocka_unit_test(neighbours),          cmocka_unit_test(after_a_storm),
        cmocka_unit_test(first_steps),         cmocka_unit_test(odd_times),
        cmocka_unit_test(far_tokens_are_dear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
