/* Generation on the nano model: what stops it, what is shown, and that it is the same for every
 * shape of session. */
#include "nano.h"

static const char prompt[] = "Once upon a time";

typedef struct shown {
    char text[8192];
    size_t n;
    int32_t ids[512];
    size_t n_ids, refuse_at;
} shown;

static bool on_text(void *user, const char *text, size_t n, int32_t id)
{
    shown *s = user;
    memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n] = '\0';
    s->ids[s->n_ids++] = id;
    return s->n_ids != s->refuse_at;
}

typedef struct setup {
    nano n;
    bitnet_session *session;
    int32_t ids[64];
    size_t n_ids;
} setup;

static setup open_all(int n_threads, int n_ctx, int n_batch)
{
    setup u = {.n = nano_open(n_threads)};
    u.session = nano_session(&u.n, n_ctx, n_batch, BITNET_KV_F16);
    OK(bitnet_tokenize(u.n.engine, prompt, sizeof prompt - 1, BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL,
                       u.ids, 64, &u.n_ids, &err));
    return u;
}

static void close_all(setup *u)
{
    bitnet_session_close(u->session);
    nano_close(&u->n);
}

static bitnet_sampler *sampler_of(const setup *u, float temperature, uint64_t seed)
{
    bitnet_sampler_options o;
    bitnet_sampler_options_init(&o);
    o.temperature = temperature;
    o.seed = seed;
    bitnet_sampler *s = NULL;
    OK(bitnet_sampler_open(&o, u->n.n_vocab, &s, &err));
    return s;
}

static bitnet_generate_result generate(setup *u, float temperature, uint64_t seed,
                                       bitnet_generate_options *o, shown *out)
{
    bitnet_generate_result r;
    bitnet_sampler *s = sampler_of(u, temperature, seed);
    memset(out->text, 0, sizeof out->text);
    out->n = out->n_ids = 0;
    o->on_text = on_text;
    o->user = out;
    OK(bitnet_generate(u->session, s, u->ids, u->n_ids, o, &r, &err));
    assert_int_equal(r.n_generated, out->n_ids);
    bitnet_sampler_close(s);
    return r;
}

/* ---- what is generated ---- */

/* The loop a program could write itself gives the same tokens and, detokenised at once, the same
 * text. */
static void equals_the_plain_loop(void **state)
{
    (void)state;
    setup u = open_all(2, 0, 0);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.max_tokens = 60;
    o.ignore_eos = true;
    shown out = {0};
    bitnet_generate_result r = generate(&u, 0.9f, 17, &o, &out);
    assert_int_equal(r.finish, BITNET_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 60);
    assert_int_equal(r.last_id, out.ids[59]);
    assert_int_equal(r.n_prefilled, u.n_ids);
    assert_true(r.prefill_ms > 0 && r.first_token_ms >= r.prefill_ms && r.decode_ms > 0);
    assert_int_equal(bitnet_session_position(u.session),
                     u.n_ids + 59); /* the last one is not appended */

    bitnet_session *s = nano_session(&u.n, 0, 0, BITNET_KV_F16);
    bitnet_sampler *pick = sampler_of(&u, 0.9f, 17);
    int32_t all[128];
    size_t n = u.n_ids, n_bytes;
    memcpy(all, u.ids, n * sizeof *all);
    OK(bitnet_session_append(s, all, n, NULL, NULL, &err));
    for (int i = 0; i < 60; i++) {
        OK(bitnet_sampler_pick(pick, bitnet_session_logits(s), all, n, &all[n], &err));
        assert_int_equal(all[n], out.ids[i]);
        OK(bitnet_session_append(s, &all[n++], 1, NULL, NULL, &err));
    }
    char text[8192];
    OK(bitnet_detokenize(u.n.engine, all, n, 0, text, sizeof text, &n_bytes, &err));
    assert_int_equal(n_bytes, sizeof prompt - 1 + out.n);
    assert_memory_equal(text + sizeof prompt - 1, out.text, out.n);
    bitnet_sampler_close(pick);
    bitnet_session_close(s);
    close_all(&u);
}

static void the_same_for_every_shape(void **state)
{
    (void)state;
    static const struct {
        int n_threads, n_batch;
    } rows[] = {{1, 512}, {2, 1}, {3, 7}, {7, 512}, {2, 2}};
    shown first = {0}, out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup u = open_all(rows[i].n_threads, 0, rows[i].n_batch);
        bitnet_generate_options o;
        bitnet_generate_options_init(&o);
        o.max_tokens = 100;
        generate(&u, 0.8f, 5, &o, i ? &out : &first);
        if (i && (out.n != first.n || memcmp(out.text, first.text, out.n) != 0))
            fail_msg("%d threads, batch %d: \"%s\" is not \"%s\"", rows[i].n_threads,
                     rows[i].n_batch, out.text, first.text);
        close_all(&u);
    }
    setup u = open_all(1, 0, 0);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.max_tokens = 100;
    generate(&u, 0.8f, 6, &o, &out);
    assert_string_not_equal(out.text, first.text); /* another seed, another story */
    close_all(&u);
}

/* ---- what stops it ---- */

static void stops_at_ids(void **state)
{
    (void)state;
    setup u = open_all(1, 0, 0);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.max_tokens = 40;
    o.ignore_eos = true;
    shown whole = {0}, out = {0};
    generate(&u, 0, 0, &o, &whole);
    int32_t stop[2] = {-1, whole.ids[20]};
    size_t first = 0;
    while (whole.ids[first] != stop[1])
        first++;
    o.stop_ids = stop;
    o.n_stop_ids = 2;
    bitnet_generate_result r = generate(&u, 0, 0, &o, &out);
    assert_int_equal(r.finish, BITNET_FINISH_STOP_ID);
    assert_string_equal(bitnet_finish_text(r.finish), "stop_id");
    assert_int_equal(r.n_generated, first + 1);
    assert_int_equal(r.last_id, stop[1]);
    assert_int_equal(bitnet_session_position(u.session), u.n_ids + first);
    assert_int_equal(r.n_prefilled, 1);               /* the prompt was there already */
    assert_memory_equal(out.text, whole.text, out.n); /* the stopping token's text is not shown */
    close_all(&u);
}

static void stops_at_eos(void **state)
{
    (void)state;
    setup u = open_all(1, 0, 0);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.max_tokens = 200;
    shown out = {0}, past = {0};
    bitnet_generate_result r = {0};
    uint64_t seed = 0;
    for (; seed < 200 && r.finish != BITNET_FINISH_EOS; seed++)
        r = generate(&u, 1.0f, seed, &o, &out);
    if (r.finish != BITNET_FINISH_EOS)
        fail_msg("no story of 200 ended");
    assert_true(bitnet_token_stops(u.n.engine, r.last_id));
    assert_int_equal(bitnet_session_position(u.session), u.n_ids + r.n_generated - 1);
    o.ignore_eos = true;
    o.print_special = true;
    generate(&u, 1.0f, seed - 1, &o, &past);
    assert_true(past.n_ids > out.n_ids);
    assert_memory_equal(past.text, out.text, out.n);
    size_t n_name;
    const char *name = bitnet_token_bytes(u.n.engine, r.last_id, &n_name);
    assert_memory_equal(past.text + out.n, name, n_name);
    close_all(&u);
}

static void stops_at_strings(void **state)
{
    (void)state;
    setup u = open_all(2, 0, 0);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.max_tokens = 80;
    o.ignore_eos = true;
    shown whole = {0}, out = {0};
    generate(&u, 0.7f, 3, &o, &whole);
    assert_true(whole.n > 60);
    for (size_t at = 5; at + 12 < whole.n && at < 60; at += 7) { /* cuts tokens wherever they lie */
        char stop[16] = {0};
        memcpy(stop, whole.text + at, 9);
        const char *stops[2] = {"never there", stop};
        const char *found = strstr(whole.text, stop);
        o.stops = stops;
        o.n_stops = 2;
        bitnet_generate_result r = generate(&u, 0.7f, 3, &o, &out);
        assert_int_equal(r.finish, BITNET_FINISH_STOP_STRING);
        if (out.n != (size_t)(found - whole.text) || memcmp(out.text, whole.text, out.n) != 0)
            fail_msg("stop \"%s\" gives \"%s\"", stop, out.text);
        assert_true(r.n_generated < 80);
    }
    close_all(&u);
}

static void stops_at_the_context(void **state)
{
    (void)state;
    setup u = open_all(1, 24, 0);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.ignore_eos = true;
    shown out = {0};
    bitnet_generate_result r = generate(&u, 0, 0, &o, &out);
    assert_int_equal(r.finish, BITNET_FINISH_CONTEXT);
    assert_int_equal(bitnet_session_position(u.session), 24);
    assert_int_equal(r.n_generated, 24 - u.n_ids + 1);
    int32_t full[25] = {0};
    bitnet_sampler *s = sampler_of(&u, 0, 0);
    FAILS(bitnet_generate(u.session, s, full, 25, &o, &r, &err), BITNET_CONTEXT,
          "25 tokens do not fit");
    assert_int_equal(r.n_generated, 0);
    OK(bitnet_generate(u.session, s, full, 24, &o, &r,
                       &err)); /* exactly full: one more can be chosen */
    assert_int_equal(r.finish, BITNET_FINISH_CONTEXT);
    assert_int_equal(r.n_generated, 1);
    bitnet_sampler_close(s);
    close_all(&u);
}

static bool count_down(void *user)
{
    return --*(int *)user < 0;
}

static void can_be_cancelled(void **state)
{
    (void)state;
    setup u = open_all(1, 0, 1);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.ignore_eos = true;
    shown out = {.refuse_at = 7};
    bitnet_generate_result r = generate(&u, 0, 0, &o, &out); /* by the text callback */
    assert_int_equal(r.finish, BITNET_FINISH_CANCELLED);
    assert_int_equal(r.n_generated, 7);
    char first[sizeof out.text];
    memcpy(first, out.text, sizeof first);

    int polls = 1 + 6; /* one for the prompt token not reused, then one per token */
    out.refuse_at = 0;
    bitnet_session_on_cancel(u.session, count_down, &polls);
    o.max_tokens = 20;
    r = generate(&u, 0, 0, &o, &out); /* while decoding: an orderly end */
    assert_int_equal(r.finish, BITNET_FINISH_CANCELLED);
    assert_int_equal(r.n_generated, 7);
    assert_string_equal(out.text, first);

    polls = 0;
    bitnet_sampler *s = sampler_of(&u, 0, 0);
    OK(bitnet_session_rewind(u.session, 0, &err));
    FAILS(bitnet_generate(u.session, s, u.ids, u.n_ids, &o, &r, &err), BITNET_CANCELLED,
          "cancelled at position 0");
    assert_int_equal(r.finish, BITNET_FINISH_CANCELLED);
    polls = 2;
    FAILS(bitnet_generate(u.session, s, u.ids, u.n_ids, &o, &r, &err), BITNET_CANCELLED,
          "cancelled at position 2");
    assert_int_equal(r.n_prefilled, 2);
    bitnet_sampler_close(s);
    close_all(&u);
}

/* Every token that was to come is named a stop id: none ends the generation before min_tokens, and
 * the first that is chosen after it does. */
static void ends_wait_for_min_tokens(void **state)
{
    (void)state;
    setup u = open_all(1, 0, 0);
    bitnet_generate_options o;
    shown plain = {0}, out = {0};
    for (int greedy = 0; greedy < 2; greedy++) {
        float temperature = greedy ? 0 : 0.7f;
        bitnet_generate_options_init(&o);
        o.max_tokens = 12;
        generate(&u, temperature, 3, &o, &plain);
        o.stop_ids = plain.ids;
        o.n_stop_ids = 1;
        bitnet_generate_result r = generate(&u, temperature, 3, &o, &out);
        assert_int_equal(r.finish, BITNET_FINISH_STOP_ID);
        assert_int_equal(r.n_generated, 1);
        o.min_tokens = 1;
        r = generate(&u, temperature, 3, &o, &out);
        assert_true(r.n_generated > 1 && out.ids[0] != plain.ids[0]);

        o.n_stop_ids = 0; /* without a stop id in the way nothing changes */
        r = generate(&u, temperature, 3, &o, &out);
        assert_int_equal(out.n_ids, plain.n_ids);
        assert_memory_equal(out.ids, plain.ids, plain.n_ids * sizeof plain.ids[0]);
    }
    int32_t all[512];
    for (int32_t i = 0; i < 512; i++)
        all[i] = i < 100 ? i : i + 1; /* all but 100; 512 is none */
    o.ignore_eos = true;
    o.stop_ids = all;
    o.n_stop_ids = 512;
    o.min_tokens = 3;
    bitnet_generate_result r = generate(&u, 0, 0, &o, &out);
    assert_int_equal(r.finish, BITNET_FINISH_STOP_ID);
    assert_int_equal(r.n_generated, 4);
    for (int i = 0; i < 3; i++)
        assert_int_equal(out.ids[i], 100);
    all[511] = 100;
    bitnet_sampler *s = sampler_of(&u, 0, 0);
    o.on_text = NULL;
    FAILS(bitnet_generate(u.session, s, u.ids, u.n_ids, &o, NULL, &err), BITNET_ERROR,
          "no token is left: 512 of the 512 may not be chosen yet");
    bitnet_sampler_close(s);
    close_all(&u);
}

/* The model's own stop token, where it is the most likely one, is passed over; and the sampler is
 * free again afterwards, however the generation ended. */
static void eos_waits_for_min_tokens(void **state)
{
    (void)state;
    setup u = open_all(1, 0, 0);
    bitnet_generate_options o;
    shown out = {0};
    bitnet_generate_options_init(&o);
    o.max_tokens = 200;
    uint64_t seed = 0;
    bitnet_generate_result r = {0};
    for (; seed < 200 && r.finish != BITNET_FINISH_EOS; seed++)
        r = generate(&u, 1.0f, seed, &o, &out);
    assert_int_equal(r.finish, BITNET_FINISH_EOS);
    size_t n = r.n_generated;
    o.min_tokens = n;
    generate(&u, 1.0f, --seed, &o, &out);
    assert_true(out.n_ids >= n && !bitnet_token_stops(u.n.engine, out.ids[n - 1]));

    bitnet_sampler *s = sampler_of(&u, 1.0f, seed);
    o.max_tokens = 2; /* ends while ends are still forbidden */
    o.on_text = NULL;
    OK(bitnet_generate(u.session, s, u.ids, u.n_ids, &o, &r, &err));
    assert_int_equal(r.finish, BITNET_FINISH_LENGTH);
    o.max_tokens = 200;
    o.min_tokens = 0;
    bool ended = false;
    for (int i = 0; i < 200 && !ended; i++) {
        OK(bitnet_generate(u.session, s, u.ids, u.n_ids, &o, &r, &err));
        ended = r.finish == BITNET_FINISH_EOS;
    }
    assert_true(ended);
    bitnet_sampler_close(s);
    close_all(&u);
}

/* Held-back text that turns out to be no stop string is shown when the end comes. */
static void the_end_releases_the_tail(void **state)
{
    (void)state;
    setup u = open_all(1, 0, 0);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    o.max_tokens = 30;
    o.ignore_eos = true;
    shown whole = {0}, out = {0};
    generate(&u, 0.7f, 3, &o, &whole);
    char stop[64];
    snprintf(stop, sizeof stop, "%s?never",
             whole.text + whole.n - 12); /* begins in the last tokens */
    const char *stops[1] = {stop};
    o.stops = stops;
    o.n_stops = 1;
    bitnet_generate_result r = generate(&u, 0.7f, 3, &o, &out);
    assert_int_equal(r.finish, BITNET_FINISH_LENGTH);
    assert_string_equal(out.text, whole.text);
    close_all(&u);
}

static void arguments(void **state)
{
    (void)state;
    setup u = open_all(1, 0, 0);
    bitnet_generate_options o;
    bitnet_generate_options_init(&o);
    bitnet_generate_result r;
    bitnet_sampler *s = sampler_of(&u, 0, 0), *wrong = NULL;
    FAILS(bitnet_generate(u.session, s, u.ids, 0, &o, &r, &err), BITNET_ARGUMENT,
          "the prompt has no tokens");
    FAILS(bitnet_generate(NULL, s, u.ids, 1, &o, &r, &err), BITNET_ARGUMENT, "session and sampler");
    OK(bitnet_sampler_open(NULL, 100, &wrong, &err));
    FAILS(bitnet_generate(u.session, wrong, u.ids, 1, &o, &r, &err), BITNET_ARGUMENT,
          "opened for 100 tokens, the model has 512");
    o.n_stops = 1;
    FAILS(bitnet_generate(u.session, s, u.ids, 1, &o, &r, &err), BITNET_ARGUMENT,
          "stops must not be NULL");
    bitnet_generate_options_init(&o);
    o.n_stop_ids = 1;
    FAILS(bitnet_generate(u.session, s, u.ids, 1, &o, &r, &err), BITNET_ARGUMENT,
          "stop_ids must not be NULL");
    o.struct_size = 0;
    FAILS(bitnet_generate(u.session, s, u.ids, 1, &o, &r, &err), BITNET_ARGUMENT,
          "generate options: struct_size is 0");
    bitnet_generate_options_init(&o);
    o.max_tokens = 0;
    OK(bitnet_generate(u.session, s, u.ids, u.n_ids, &o, NULL, &err));
    assert_int_equal(bitnet_session_position(u.session), u.n_ids);
    static const char *const names[] = {"length",  "stop_id",   "eos",    "stop_string",
                                        "context", "cancelled", "unknown"};
    for (int i = 0; i < 7; i++)
        assert_string_equal(bitnet_finish_text((bitnet_finish)i), names[i]);
    bitnet_sampler_close(s);
    bitnet_sampler_close(wrong);
    close_all(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_plain_loop),
        cmocka_unit_test(the_same_for_every_shape),
        cmocka_unit_test(stops_at_ids),
        cmocka_unit_test(stops_at_eos),
        cmocka_unit_test(stops_at_strings),
        cmocka_unit_test(stops_at_the_context),
        cmocka_unit_test(can_be_cancelled),
        cmocka_unit_test(ends_wait_for_min_tokens),
        cmocka_unit_test(eos_waits_for_min_tokens),
        cmocka_unit_test(the_end_releases_the_tail),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
