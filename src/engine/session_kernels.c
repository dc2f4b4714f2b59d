/* session_kernels.c - which kernels computed a session's tokens. Hides: that they are differences
 * of the backend's counters around a call, so what another call computed meanwhile is among them;
 * such calls are marked as shared. */
#include "engine/engine.h"
#include "ops/inspect.h"

static bnet_backend *backend_of(const bitnet_session *s)
{
    return s->fallen ? s->engine->spare : s->engine->backend;
}

void bnet_kernels_begin(bnet_scratch *x, const bitnet_session *s)
{
    x->n_uses = bnet_backend_kernels(backend_of(s), x->uses, BNET_KERNELS_MAX);
    x->among = bnet_scratch_accompanied(&s->engine->workspaces, x);
}

/* The row of a kernel; one for all others if there are too many. */
static bitnet_session_kernel *row_of(bitnet_session *s, const char *id)
{
    size_t n = s->n_kernels;
    for (size_t i = 0; i < n; i++)
        if (s->kernels[i].id == id)
            return &s->kernels[i];
    if (n == BNET_SESSION_KERNELS)
        return &s->kernels[n - 1];
    s->kernels[n] = (bitnet_session_kernel){n + 1 < BNET_SESSION_KERNELS ? id : "others", 0, 0};
    s->n_kernels++;
    return &s->kernels[n];
}

typedef struct ending {
    const bnet_scratch *x;
    size_t at; /* both lists are in the registry's order: the search continues where it ended */
    bitnet_session *const *sessions;
    size_t n;
    bool shared;
} ending;

static uint64_t calls_before(ending *e, const char *id)
{
    for (size_t i = e->at; i < e->x->n_uses; i++)
        if (e->x->uses[i].id == id) {
            e->at = i + 1;
            return e->x->uses[i].n_calls;
        }
    return 0;
}

static void add_use(void *user, const bitnet_kernel_use *now)
{
    ending *e = user;
    uint64_t calls = now->n_calls - calls_before(e, now->id);
    for (size_t i = 0; calls && i < e->n; i++) {
        bitnet_session_kernel *row = row_of(e->sessions[i], now->id);
        row->n_calls += calls;
        row->n_shared += e->shared ? calls : 0;
    }
}

void bnet_kernels_end(bnet_scratch *x, bitnet_session *const *sessions, size_t n)
{
    const bitnet_session *s = sessions[0];
    bool shared = n > 1 || x->among || bnet_scratch_accompanied(&s->engine->workspaces, x);
    ending e = {x, 0, sessions, n, shared};
    bnet_backend_each_kernel(backend_of(s), add_use, &e);
}

size_t bitnet_session_kernels(const bitnet_session *s, bitnet_session_kernel *out, size_t cap)
{
    if (!s || (cap && !out))
        return 0;
    for (size_t i = 0; i < s->n_kernels && i < cap; i++)
        out[i] = s->kernels[i];
    return s->n_kernels;
}
