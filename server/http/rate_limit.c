/* rate_limit.c - buckets of tokens in a table of fixed size. Where too many callers fall together
 * the one that was quiet for longest is forgotten, which gives it a full bucket: a limit may be
 * missed by a crowd, but memory and time are bounded. */
#include "http/rate_limit.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

enum { N_SETS = 1024, N_WAYS = 8 };

typedef struct bucket {
    uint64_t who; /* 0: empty */
    double tokens, seen_ms;
} bucket;

struct srv_rates {
    pthread_mutex_t lock;
    double per_s, most; /* a bucket holds two seconds of tokens, one at least */
    uint64_t secret;    /* nobody can choose addresses that fall together */
    bucket table[N_SETS][N_WAYS];
};

srv_rates *srv_rates_open(double per_s)
{
    srv_rates *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->per_s = per_s;
    r->most = fmax(1, 2 * per_s);
    if (getrandom(&r->secret, sizeof r->secret, GRND_NONBLOCK) < 0)
        r->secret = (uint64_t)(uintptr_t)r;
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void srv_rates_close(srv_rates *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The bucket of `who`, or the one that it takes over. */
static bucket *bucket_of(srv_rates *r, uint64_t who, double now_ms)
{
    bucket *set = r->table[mixed(who ^ r->secret) % N_SETS], *oldest = set;
    for (int i = 0; i < N_WAYS; i++) {
        if (set[i].who == who)
            return &set[i];
        if (set[i].seen_ms < oldest->seen_ms)
            oldest = &set[i];
    }
    *oldest = (bucket){who, r->most, now_ms};
    return oldest;
}

int srv_rates_take(srv_rates *r, uint64_t who, double now_ms)
{
    int wait_s = 0;
    if (!r || r->per_s <= 0)
        return 0;
    pthread_mutex_lock(&r->lock);
    bucket *b = bucket_of(r, who ? who : 1, now_ms);
    double passed_ms = fmax(0, now_ms - b->seen_ms); /* another thread may have read a later time */
    b->tokens = fmin(r->most, b->tokens + passed_ms / 1e3 * r->per_s);
    b->seen_ms += passed_ms;
    if (b->tokens >= 1)
        b->tokens -= 1;
    else
        wait_s = (int)fmin(3600, fmax(1, ceil((1 - b->tokens) / r->per_s)));
    pthread_mutex_unlock(&r->lock);
    return wait_s;
}
