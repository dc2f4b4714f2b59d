/* short_memory.c - see short_memory.h.
 *
 * jansson reads beyond a token whose buffer could not grow. So while a text is read, such a buffer
 * comes from memory that was put by; the reader then ends soon, and what it made is dropped. */
#include "http/short_memory.h"

#include <stdlib.h>

/* jansson hands no context to its allocator, hence a variable of each thread. */
typedef struct memory_state {
    bool is_short;
    char *spare; /* while a text is read; NULL: none */
    size_t n_spare, n_used;
} memory_state;

_Thread_local memory_state srv_memory_here;

/* A buffer of jansson has a power of two of bytes. */
static void *take_spare(memory_state *s, size_t n)
{
    if (!s->spare || n < 16 || (n & (n - 1)) != 0 || n > s->n_spare - s->n_used)
        return NULL;
    s->n_used += n; /* multiples of 16 stay aligned */
    return s->spare + s->n_used - n;
}

static void *take(size_t n)
{
    void *p = malloc(n);
    if (p)
        return p;
    srv_memory_lost();
    return take_spare(&srv_memory_here, n);
}

static void give(void *p)
{
    const memory_state *s = &srv_memory_here;
    char *at = p;
    if (!s->spare || at < s->spare || at >= s->spare + s->n_spare)
        free(p);
}

void srv_memory_watch(void)
{
    json_set_alloc_funcs(take, give);
}

void srv_memory_lost(void)
{
    srv_memory_here.is_short = true;
}

bool srv_memory_short(void)
{
    return srv_memory_here.is_short;
}

void srv_memory_forget(void)
{
    srv_memory_here.is_short = false;
}

char *srv_json_whole(const json_t *value)
{
    char *text = value && !srv_memory_short() ? json_dumps(value, JSON_COMPACT) : NULL;
    if (!srv_memory_short())
        return text;
    free(text);
    return NULL;
}

bool srv_memory_reserve(size_t n)
{
    memory_state *s = &srv_memory_here;
    s->n_used = 0;
    s->n_spare = 8 * n + 1024; /* buffers that double, up to the longest token; some once more */
    s->spare = malloc(s->n_spare);
    if (!s->spare)
        srv_memory_lost();
    return s->spare != NULL;
}

void srv_memory_release(void)
{
    free(srv_memory_here.spare);
    srv_memory_here.spare = NULL;
}

json_t *srv_json_load(const char *text, size_t n, size_t flags, json_error_t *error)
{
    json_t *value = srv_memory_reserve(n) ? json_loadb(text, n, flags, error) : NULL;
    if (srv_memory_short()) { /* parts of it may be in the memory that was put by */
        json_decref(value);
        value = NULL;
    }
    srv_memory_release();
    return value;
}
