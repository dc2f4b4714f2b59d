/* emulated_nccl.c - a libnccl.so.2 for the emulated devices: a group of calls becomes copies when
 * it ends. BITNET_EMULATED_FAIL as in emulated_cuda.c. It says "emulated" as its version 9.9.9. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { RANKS = 8, CALLS = 32, OK = 0, INVALID = 4, WRONG_USE = 5 };

typedef struct comm {
    int rank, n, error;
} comm;

typedef struct call {
    const uint8_t *from;
    uint8_t *to;
    size_t n;
    int rank, peer, n_ranks; /* peer -1: all gather */
} call;

static call calls[CALLS];
static int n_calls, depth;

/* NCCL would make a device of its own choice current. */
static void entered(const char *name)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *context = NULL;
    int (*current)(void **) = cuda ? (int (*)(void **))dlsym(cuda, "cuCtxGetCurrent") : NULL;
    if (current && current(&context) == 0 && !context) {
        fprintf(stderr, "emulated: %s without a current context\n", name);
        abort();
    }
}

static int fault(const char *name)
{
    static int seen;
    entered(name);
    const char *s = getenv("BITNET_EMULATED_FAIL");
    char which[64];
    int n, code;
    if (!s || sscanf(s, "%63s %d %d", which, &n, &code) != 3 || strcmp(which, name) != 0)
        return OK;
    return ++seen == n || (n < 0 && seen >= -n) ? code : OK;
}

API int ncclGetVersion(int *v)
{
    *v = 90909;
    return fault("ncclGetVersion");
}

API const char *ncclGetErrorString(int r)
{
    return r == OK ? "no error" : "an emulated error";
}

API int ncclCommInitAll(comm **out, int n, const int *devices)
{
    int r = fault("ncclCommInitAll");
    for (int i = 0; r == OK && i < n; i++)
        for (int k = 0; k < i; k++)
            if (devices[i] == devices[k])
                return WRONG_USE; /* as NCCL refuses it */
    for (int i = 0; r == OK && i < n; i++) {
        out[i] = malloc(sizeof *out[i]);
        *out[i] = (comm){i, n, OK};
    }
    return r;
}

/* A communicator that failed cannot be finished: who tries waits for ever. */
API int ncclCommDestroy(comm *c)
{
    entered("ncclCommDestroy");
    if (c->error)
        fprintf(stderr, "emulated: rank %d failed and was not aborted\n", c->rank);
    free(c);
    return OK;
}

API int ncclCommAbort(comm *c)
{
    entered("ncclCommAbort");
    fprintf(stderr, "emulated: rank %d was aborted\n", c->rank);
    free(c);
    return OK;
}

API int ncclCommGetAsyncError(comm *c, int *error)
{
    int now = fault("ncclCommGetAsyncError");
    c->error = now ? now : c->error;
    *error = c->error;
    return OK;
}

API int ncclGroupStart(void)
{
    depth++;
    n_calls = 0;
    return fault("ncclGroupStart");
}

/* Every rank's part must be there: a collective that one rank misses would hang. */
static int run_gather(const call *a)
{
    int n = 0;
    for (int i = 0; i < n_calls; i++) {
        const call *b = &calls[i];
        if (b->peer >= 0 || b->n != a->n)
            return INVALID;
        memcpy(a->to + (size_t)b->rank * a->n, b->from, b->n);
        n++;
    }
    return n == a->n_ranks ? OK : INVALID;
}

static int run_receive(const call *a)
{
    for (int i = 0; i < n_calls; i++) {
        const call *b = &calls[i];
        if (b->from && b->rank == a->peer && b->peer == a->rank && b->n == a->n) {
            memcpy(a->to, b->from, a->n);
            return OK;
        }
    }
    return INVALID;
}

API int ncclGroupEnd(void)
{
    int r = --depth == 0 ? fault("ncclGroupEnd") : WRONG_USE;
    for (int i = 0; r == OK && i < n_calls; i++)
        if (calls[i].to)
            r = calls[i].peer < 0 ? run_gather(&calls[i]) : run_receive(&calls[i]);
    return r;
}

static int add(call c, int type, const char *name)
{
    int r = fault(name);
    if (depth != 1 || type != 0 || n_calls == CALLS)
        return WRONG_USE;
    if (r == OK)
        calls[n_calls++] = c;
    return r;
}

API int ncclAllGather(const void *from, void *to, size_t n, int type, comm *c, void *stream)
{
    (void)stream;
    return add((call){from, to, n, c->rank, -1, c->n}, type, "ncclAllGather");
}

API int ncclSend(const void *from, size_t n, int type, int peer, comm *c, void *stream)
{
    (void)stream;
    return add((call){from, NULL, n, c->rank, peer, c->n}, type, "ncclSend");
}

API int ncclRecv(void *to, size_t n, int type, int peer, comm *c, void *stream)
{
    (void)stream;
    return add((call){NULL, to, n, c->rank, peer, c->n}, type, "ncclRecv");
}
