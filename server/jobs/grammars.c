/* grammars.c - see grammars.h. A short list under a lock; compiling is done outside of it. */
#include "jobs/grammars.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct srv_grammar {
    srv_grammar *next;
    bitnet_grammar *compiled;
    bitnet_grammar_kind kind;
    char *text;
    size_t n_text;
    int refs; /* users, and the list */
};

struct srv_grammars {
    size_t most;
    pthread_mutex_t lock;
    srv_grammar *first; /* the one that was used last */
};

srv_grammars *srv_grammars_open(size_t most)
{
    srv_grammars *g = calloc(1, sizeof *g);
    if (!g || pthread_mutex_init(&g->lock, NULL)) {
        free(g);
        return NULL;
    }
    g->most = most;
    return g;
}

static void drop(srv_grammar *one)
{
    if (--one->refs > 0)
        return;
    bitnet_grammar_close(one->compiled);
    free(one->text);
    free(one);
}

void srv_grammars_close(srv_grammars *g)
{
    if (!g)
        return;
    while (g->first) {
        srv_grammar *one = g->first;
        g->first = one->next;
        drop(one);
    }
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static bool is_same(const srv_grammar *one, bitnet_grammar_kind kind, const char *text, size_t n)
{
    return one->kind == kind && one->n_text == n && (n == 0 || memcmp(one->text, text, n) == 0);
}

/* The kept one, moved to the front; NULL: there is none. Under the lock. */
static srv_grammar *find(srv_grammars *g, bitnet_grammar_kind kind, const char *text, size_t n)
{
    for (srv_grammar **at = &g->first; *at; at = &(*at)->next) {
        srv_grammar *one = *at;
        if (!is_same(one, kind, text, n))
            continue;
        *at = one->next;
        one->next = g->first;
        g->first = one;
        one->refs++;
        return one;
    }
    return NULL;
}

/* Puts it in front; those beyond `most` go. Under the lock. */
static void keep(srv_grammars *g, srv_grammar *one)
{
    size_t n = 0;
    one->next = g->first;
    g->first = one;
    one->refs++;
    for (srv_grammar **at = &g->first; *at;) {
        srv_grammar *old = *at;
        if (n++ < g->most) {
            at = &old->next;
            continue;
        }
        *at = old->next;
        drop(old);
    }
}

static bitnet_status compile(bitnet_engine *engine, bitnet_grammar_kind kind, const char *text,
                             size_t n, srv_grammar **out, bitnet_error *err)
{
    srv_grammar *one = calloc(1, sizeof *one);
    char *copy = malloc(n + 1);
    bitnet_status st = BITNET_MEMORY;
    if (one && copy)
        st = bitnet_grammar_open(engine, kind, text, n, &one->compiled, err);
    else if (err)
        *err = (bitnet_error){BITNET_MEMORY, "out of memory"};
    if (st != BITNET_OK) {
        free(one);
        free(copy);
        return st;
    }
    if (n)
        memcpy(copy, text, n);
    one->text = copy;
    one->n_text = n;
    one->kind = kind;
    one->refs = 1;
    *out = one;
    return BITNET_OK;
}

static srv_grammar *find_kept(srv_grammars *g, bitnet_grammar_kind kind, const char *text,
                              size_t n_text)
{
    if (!g)
        return NULL;
    pthread_mutex_lock(&g->lock);
    srv_grammar *one = find(g, kind, text, n_text);
    pthread_mutex_unlock(&g->lock);
    return one;
}

bitnet_status srv_grammars_use(srv_grammars *g, bitnet_engine *engine, bitnet_grammar_kind kind,
                               const char *text, size_t n_text, srv_grammar **out,
                               bitnet_error *err)
{
    srv_grammar *one = find_kept(g, kind, text, n_text);
    if (!one) {
        bitnet_status st = compile(engine, kind, text, n_text, &one, err);
        if (st != BITNET_OK)
            return st;
        if (g) {
            pthread_mutex_lock(&g->lock);
            keep(g, one);
            pthread_mutex_unlock(&g->lock);
        }
    }
    *out = one;
    return BITNET_OK;
}

bitnet_grammar *srv_grammar_of(const srv_grammar *used)
{
    return used->compiled;
}

void srv_grammars_release(srv_grammars *g, srv_grammar *used)
{
    if (!used)
        return;
    if (g)
        pthread_mutex_lock(&g->lock);
    drop(used);
    if (g)
        pthread_mutex_unlock(&g->lock);
}
