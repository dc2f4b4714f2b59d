/* test_tellers.c - threads that tell for many: whoever is rung for is told, each on one thread, few
 * threads for many; and the thread that asked sleeps until it is over. */
#include "test.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "jobs/bell.c"
#include "jobs/tellers.h"

enum { MANY = 40 };

typedef struct client {
    srv_tellers *all;
    atomic_int n_told, n_wanted; /* it is over once it was told as often as it is wanted */
    atomic_int n_news;           /* what there is to tell */
    _Atomic(srv_bell *) bell;
    pthread_t thread, teller;
    bool one_teller, ran;
} client;

static bool tell(void *client_)
{
    client *c = client_;
    c->one_teller = c->one_teller && (!c->n_told || pthread_equal(c->teller, pthread_self()));
    c->teller = pthread_self();
    c->n_told += atomic_exchange(&c->n_news, 0);
    return c->n_told < c->n_wanted;
}

static void hear(void *client_, srv_bell *bell)
{
    client *c = client_;
    atomic_store(&c->bell, bell);
}

static void *run(void *client_)
{
    client *c = client_;
    c->ran = srv_tellers_run(c->all, &(srv_telling){tell, hear, c});
    return NULL;
}

static void start(client *c, srv_tellers *all, int n_wanted)
{
    *c = (client){.all = all, .n_wanted = n_wanted, .one_teller = true};
    assert_int_equal(pthread_create(&c->thread, NULL, run, c), 0);
    while (!atomic_load(&c->bell))
        usleep(200);
}

static size_t count_tellers(const client *c, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < i && !pthread_equal(c[k].teller, c[i].teller))
            k++;
        count += k == i;
    }
    return count;
}

/* So many clients, told 50 times each. Returns how many threads did that. */
static size_t tell_many(int most, size_t n)
{
    static client clients[MANY];
    srv_tellers *all = srv_tellers_open(most);
    assert_non_null(all);
    for (size_t i = 0; i < n; i++)
        start(&clients[i], all, 50);
    for (int turn = 0; turn < 50; turn++)
        for (size_t i = 0; i < n; i++) {
            srv_bell *bell = atomic_load(&clients[i].bell);
            clients[i].n_news++;
            srv_bell_ring(bell);
        }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
        assert_true(clients[i].ran && clients[i].one_teller);
        assert_int_equal(clients[i].n_told, 50);
        assert_null(atomic_load(&clients[i].bell)); /* nobody is to ring any more */
    }
    size_t n_tellers = count_tellers(clients, n);
    srv_tellers_close(all);
    return n_tellers;
}

static void few_share_a_thread(void **state)
{
    (void)state;
    assert_int_equal(tell_many(4, 1), 1);
    assert_int_equal(tell_many(4, 16), 1);
}

static void many_have_several(void **state)
{
    (void)state;
    assert_int_equal(tell_many(4, MANY), 3);
    assert_int_equal(tell_many(1, MANY), 1);
    assert_int_equal(tell_many(0, 3), 1);
}

/* What nobody rings for is looked at all the same: a client that has gone makes no noise. */
static void without_a_bell(void **state)
{
    (void)state;
    client c;
    srv_tellers *all = srv_tellers_open(1);
    start(&c, all, 1);
    c.n_news = 1;
    assert_int_equal(pthread_join(c.thread, NULL), 0);
    assert_int_equal(c.n_told, 1);
    srv_tellers_close(all);
}

static void *ring_later(void *bell)
{
    usleep(20000);
    srv_bell_ring(bell);
    return NULL;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void bells(void **state)
{
    (void)state;
    srv_bell b;
    pthread_t thread;
    srv_bell_open(&b);
    srv_bell_ring(&b);
    srv_bell_ring(&b);
    srv_bell_wait(&b, 1e9); /* rung before: at once */
    double begun = now_ms();
    srv_bell_wait(&b, 20); /* two rings were one */
    assert_true(now_ms() - begun >= 19);
    assert_int_equal(pthread_create(&thread, NULL, ring_later, &b), 0);
    srv_bell_wait(&b, 1e9);
    pthread_join(thread, NULL);
    srv_bell_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_share_a_thread),
        cmocka_unit_test(many_have_several),
        cmocka_unit_test(without_a_bell),
        cmocka_unit_test(bells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
