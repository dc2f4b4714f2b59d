/* receipts.c - see receipts.h. Hides: that they lie in a ring, the next place being that of the
 * oldest. */
#include "metrics/receipts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ID_SIZE = 40, MOST = 65536 };

typedef struct place {
    char id[ID_SIZE]; /* "": none yet */
    char *text;       /* NULL: it will come */
    size_t n_text;
} place;

struct srv_receipts {
    pthread_mutex_t lock;
    place *ring; /* `most` */
    size_t most, next;
};

srv_receipts *srv_receipts_open(size_t most)
{
    srv_receipts *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->most = most < 1 ? 1 : most > MOST ? MOST : most;
    r->ring = calloc(r->most, sizeof *r->ring);
    if (!r->ring) {
        free(r);
        return NULL;
    }
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void srv_receipts_close(srv_receipts *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->most; i++)
        free(r->ring[i].text);
    pthread_mutex_destroy(&r->lock);
    free(r->ring);
    free(r);
}

bool srv_receipts_new(char id[40])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    char *p = id + snprintf(id, ID_SIZE, "rcp_");
    for (size_t i = 0; i < sizeof bytes; i++)
        p += snprintf(p, 3, "%02x", bytes[i]);
    return true;
}

/* Under the lock. NULL: there is no such id. */
static place *find(srv_receipts *r, const char *id)
{
    for (size_t i = 0; *id && i < r->most; i++)
        if (strcmp(r->ring[i].id, id) == 0)
            return &r->ring[i];
    return NULL;
}

/* Under the lock. The place of the id, which it has from now on. */
static place *settle(srv_receipts *r, const char *id)
{
    place *p = find(r, id);
    if (p)
        return p;
    p = &r->ring[r->next];
    r->next = (r->next + 1) % r->most;
    free(p->text);
    *p = (place){0};
    snprintf(p->id, sizeof p->id, "%s", id);
    return p;
}

void srv_receipts_keep(srv_receipts *r, const char *id)
{
    pthread_mutex_lock(&r->lock);
    settle(r, id);
    pthread_mutex_unlock(&r->lock);
}

void srv_receipts_put(srv_receipts *r, const char *id, const char *text, size_t n_bytes)
{
    char *copy = malloc(n_bytes + !n_bytes);
    if (!copy)
        return;
    memcpy(copy, text, n_bytes);
    pthread_mutex_lock(&r->lock);
    place *p = settle(r, id);
    free(p->text);
    p->text = copy;
    p->n_text = n_bytes;
    pthread_mutex_unlock(&r->lock);
}

json_t *srv_receipts_get(srv_receipts *r, const char *id)
{
    pthread_mutex_lock(&r->lock);
    const place *p = find(r, id);
    json_t *receipt =
        p && p->text ? json_loadb(p->text, p->n_text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    pthread_mutex_unlock(&r->lock);
    return receipt;
}

bool srv_receipts_expected(srv_receipts *r, const char *id)
{
    pthread_mutex_lock(&r->lock);
    bool expected = find(r, id) != NULL;
    pthread_mutex_unlock(&r->lock);
    return expected;
}
