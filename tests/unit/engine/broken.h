/* broken.h - a backend that fails at a chosen step. Nothing is computed wrongly: the CPU backend's
 * table is copied, and only its word at the end of a step (sync) is another one. */
#ifndef BNET_TEST_BROKEN_H
#define BNET_TEST_BROKEN_H

#include "engine/engine.h"

typedef struct broken {
    bnet_backend_vtable table;
    const bnet_backend_vtable *whole; /* as it was */
    bitnet_status (*sync)(bnet_backend *be, bitnet_error *err);
    int n_syncs, fail_at; /* counted from 1; 0: never */
    bool for_ever;        /* from fail_at on */
} broken;

static broken the_broken; /* a vtable has no room for an owner */

static bitnet_status broken_sync(bnet_backend *be, bitnet_error *err)
{
    broken *b = &the_broken;
    b->n_syncs++;
    if (b->fail_at && (b->n_syncs == b->fail_at || (b->for_ever && b->n_syncs > b->fail_at)))
        return bnet_fail(err, BITNET_ERROR, "injected failure of sync %d", b->n_syncs);
    return b->sync(be, err);
}

static inline void break_engine(bitnet_engine *e, int nth, bool for_ever)
{
    the_broken = (broken){
        .table = *e->backend->v, .whole = e->backend->v, .fail_at = nth, .for_ever = for_ever};
    the_broken.sync = e->backend->v->sync;
    the_broken.table.sync = broken_sync;
    e->backend->v = &the_broken.table;
}

static inline void unbreak_engine(bitnet_engine *e)
{
    e->backend->v = the_broken.whole;
}

#endif
