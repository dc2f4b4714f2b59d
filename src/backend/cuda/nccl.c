/* nccl.c - NVIDIA's library of collectives behind exchange.h, found at run time. One process has
 * all ranks, so each call is a group of one call per rank. */
#include "backend/cuda/cuda.h"

#include <stdio.h>

typedef struct nccl_comm_s *nccl_comm;
enum { NCCL_BYTES = 0, IN_PROGRESS = 7 }; /* ncclInt8; ncclInProgress */

enum { VERSION, INIT_ALL, DESTROY, ABORT, ASYNC, BEGIN, END, ALL_GATHER, SEND, RECEIVE, TEXT };
static const char *const names[] = {"libnccl.so.2", NULL};
static const char *const wanted[] = {"ncclGetVersion", "ncclCommInitAll",       "ncclCommDestroy",
                                     "ncclCommAbort",  "ncclCommGetAsyncError", "ncclGroupStart",
                                     "ncclGroupEnd",   "ncclAllGather",         "ncclSend",
                                     "ncclRecv",       "ncclGetErrorString",    NULL};

typedef int (*version_fn)(int *version);
typedef int (*init_fn)(nccl_comm *out, int n, const int *devices);
typedef int (*destroy_fn)(nccl_comm c);
typedef int (*async_fn)(nccl_comm c, int *error);
typedef int (*group_fn)(void);
typedef int (*gather_fn)(const void *from, void *to, size_t n, int type, nccl_comm c, cu_stream s);
typedef int (*send_fn)(const void *from, size_t n, int type, int peer, nccl_comm c, cu_stream s);
typedef int (*receive_fn)(void *to, size_t n, int type, int peer, nccl_comm c, cu_stream s);
typedef const char *(*text_fn)(int result);

typedef struct nccl_exchange {
    gpu_exchange base;
    bnet_library lib;
    nccl_comm comm[GPU_RANKS]; /* NULL: aborted */
    bnet_log log;
} nccl_exchange;

static nccl_exchange *nccl(gpu_exchange *l)
{
    return (nccl_exchange *)l;
}

static cu_stream stream_of(const gpu_backend *be)
{
    return ((const cuda_driver *)(const void *)be->d)->stream;
}

static void *at(gpu_at p)
{
    return (void *)(uintptr_t)cuda_at(p);
}

static void note(nccl_exchange *l, int r, const char *what, int result)
{
    gpu_backend *be = l->base.rank[r];
    if (result == 0)
        return;
    bnet_logf(&l->log, BITNET_LOG_ERROR, "cuda", "rank %d: %s: %s (%d)", r, what,
              ((text_fn)l->lib.fn[TEXT])(result), result);
    bnet_gpu_enter(be);
    bnet_gpu_ok(be, what, GPU_LOST);
    bnet_gpu_leave(be);
}

/* ---- calls ---- */

/* False: nothing was begun. Else the first rank's device is entered until `end`. */
static bool begin(nccl_exchange *l)
{
    bnet_gpu_enter(l->base.rank[0]);
    int result = bnet_gpu_exchange_alive(&l->base) ? ((group_fn)l->lib.fn[BEGIN])() : -1;
    if (result > 0)
        note(l, 0, "ncclGroupStart", result);
    if (result != 0)
        bnet_gpu_leave(l->base.rank[0]);
    return result == 0;
}

static void end(nccl_exchange *l)
{
    note(l, 0, "ncclGroupEnd", ((group_fn)l->lib.fn[END])());
    bnet_gpu_leave(l->base.rank[0]);
}

static void nccl_send(gpu_exchange *exchange, int from, gpu_at src, int to, gpu_at dst,
                      size_t n_bytes)
{
    nccl_exchange *l = nccl(exchange);
    gpu_backend *a = exchange->rank[from], *b = exchange->rank[to];
    if (!begin(l))
        return;
    bnet_gpu_enter(a);
    note(l, from, "ncclSend",
         ((send_fn)l->lib.fn[SEND])(at(src), n_bytes, NCCL_BYTES, to, l->comm[from], stream_of(a)));
    bnet_gpu_leave(a);
    bnet_gpu_enter(b);
    note(l, to, "ncclRecv",
         ((receive_fn)l->lib.fn[RECEIVE])(at(dst), n_bytes, NCCL_BYTES, from, l->comm[to],
                                          stream_of(b)));
    bnet_gpu_leave(b);
    end(l);
}

static void nccl_all_gather(gpu_exchange *exchange, const gpu_at *from, const gpu_at *to,
                            size_t n_bytes)
{
    nccl_exchange *l = nccl(exchange);
    if (!begin(l))
        return;
    for (int r = 0; r < exchange->n; r++) {
        gpu_backend *be = exchange->rank[r];
        bnet_gpu_enter(be);
        note(l, r, "ncclAllGather",
             ((gather_fn)l->lib.fn[ALL_GATHER])(at(from[r]), at(to[r]), n_bytes, NCCL_BYTES,
                                                l->comm[r], stream_of(be)));
        bnet_gpu_leave(be);
    }
    end(l);
}

/* What NCCL has sent it does not read again. */
static void nccl_settle(gpu_exchange *exchange)
{
    exchange->n_settled++;
}

/* A transfer that fails while it runs is reported here and nowhere else. All communicators are
 * aborted then: otherwise ranks would wait for it for ever. */
static void nccl_ask(gpu_exchange *exchange)
{
    nccl_exchange *l = nccl(exchange);
    bool any = false;
    for (int r = 0; r < exchange->n; r++) {
        int error = 0;
        bnet_gpu_enter(exchange->rank[r]);
        int result = l->comm[r] ? ((async_fn)l->lib.fn[ASYNC])(l->comm[r], &error) : 0;
        bnet_gpu_leave(exchange->rank[r]);
        error = error == IN_PROGRESS ? 0 : error;
        note(l, r, "ncclCommGetAsyncError", result ? result : error);
        any = any || result || error;
    }
    for (int r = 0; any && r < exchange->n; r++) {
        bnet_gpu_enter(exchange->rank[r]);
        if (l->comm[r])
            ((destroy_fn)l->lib.fn[ABORT])(l->comm[r]);
        bnet_gpu_leave(exchange->rank[r]);
        l->comm[r] = NULL;
    }
}

/* ---- opening ---- */

static void nccl_close(gpu_exchange *exchange)
{
    nccl_exchange *l = nccl(exchange);
    for (int r = 0; r < exchange->n; r++) {
        gpu_backend *be = exchange->rank[r];
        bnet_gpu_enter(be);
        be->d->c->wait(be->d);
        if (l->comm[r])
            ((destroy_fn)l->lib.fn[DESTROY])(l->comm[r]);
        bnet_gpu_leave(be);
    }
    bnet_library_close(&l->lib);
    bnet_free(l);
}

static void copies_instead(const bnet_log *log, const char *why)
{
    bnet_logf(log, BITNET_LOG_INFO, "cuda", "ranks are joined by copies, not NCCL: %s", why);
}

static bool on_one_device(gpu_backend *const *ranks, int n)
{
    for (int r = 0; r < n; r++)
        for (int i = 0; i < r; i++)
            if (ranks[i]->d->gpu.device_id == ranks[r]->d->gpu.device_id)
                return true;
    return false;
}

/* A communicator for every rank; NULL: there is a reason, said in the log. */
static nccl_exchange *try_nccl(gpu_backend *const *ranks, int n, const bnet_log *log)
{
    char why[200];
    int devices[GPU_RANKS], version = 0;
    if (on_one_device(ranks, n)) {
        copies_instead(log, "it takes one rank per device");
        return NULL;
    }
    nccl_exchange *l = bnet_calloc(1, sizeof *l);
    const bnet_loader *loader = ((const cuda_driver *)(const void *)ranks[0]->d)->loader;
    if (!l || !bnet_library_open(loader, names, wanted, &l->lib, why, sizeof why)) {
        copies_instead(log, l ? why : "no memory");
        bnet_free(l);
        return NULL;
    }
    for (int r = 0; r < n; r++)
        devices[r] = ranks[r]->d->gpu.device_id;
    bnet_gpu_enter(ranks[0]);
    int result = ((version_fn)l->lib.fn[VERSION])(&version);
    if (result == 0)
        result = ((init_fn)l->lib.fn[INIT_ALL])(l->comm, n, devices);
    bnet_gpu_leave(ranks[0]);
    if (result != 0) {
        snprintf(why, sizeof why, "ncclCommInitAll: %s (%d)", ((text_fn)l->lib.fn[TEXT])(result),
                 result);
        copies_instead(log, why);
        bnet_library_close(&l->lib);
        bnet_free(l);
        return NULL;
    }
    snprintf(l->base.name, sizeof l->base.name, "NCCL %d.%d.%d", version / 10000,
             version / 100 % 100, version % 100);
    return l;
}

bitnet_status bnet_cuda_exchange_open(gpu_backend *const *ranks, int n, const bnet_log *log,
                                      gpu_exchange **out, bitnet_error *err)
{
    static const gpu_exchange_calls calls = {nccl_close, nccl_send, nccl_all_gather, nccl_settle,
                                             nccl_ask};
    nccl_exchange *l = try_nccl(ranks, n, log);
    if (!l)
        return bnet_gpu_copies_open(ranks, n, out, err);
    l->base.c = &calls;
    l->base.n = n;
    l->log = log ? *log : (bnet_log){NULL, NULL};
    memcpy(l->base.rank, ranks, (size_t)n * sizeof *ranks);
    *out = &l->base;
    return BITNET_OK;
}
