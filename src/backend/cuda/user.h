/* user.h - the inside of a device that a program uses beside an engine: driver, streams, modules,
 * and the events of its work, which are kept for the next piece. */
#ifndef BNET_CUDA_USER_H
#define BNET_CUDA_USER_H

#include <pthread.h>

#include "backend/cuda/cuda.h"
#include "ops/user_device.h"

typedef struct user_module {
    bnet_user_module base;
    cu_module module;
    struct user_module *next;
} user_module;

typedef struct user_work {
    bnet_user_work base;
    cu_event begin, end;
    struct user_work *next; /* among those that wait to be used again */
} user_work;

typedef struct user_device {
    bnet_user_device base;
    cuda_driver *d;
    pthread_mutex_t lock;
    bool inside;                          /* the context is current */
    cu_stream streams[BNET_USER_STREAMS]; /* 0 is the driver's; NULL: not made yet */
    cu_event fork, join;                  /* order between memory and streams */
    cu_event origin;                      /* when it was opened */
    user_module *modules;
    user_work *spare;
} user_device;

static inline user_device *user_of(const bnet_user_device *d)
{
    return (user_device *)(uintptr_t)(const void *)d;
}
/* Lock and context. Returns the driver's code of the latter. */
int bnet_cuda_user_enter(user_device *u);
void bnet_cuda_user_leave(user_device *u);
/* Inside; NULL with the code in *r. */
cu_stream bnet_cuda_user_stream(user_device *u, int stream, int *r);
bitnet_status bnet_cuda_user_fail(const user_device *u, const char *what, int code,
                                  bitnet_error *err);

/* user_work.c */
bitnet_status bnet_cuda_user_submit(bnet_user_device *d, const bnet_user_order *o,
                                    bnet_user_work **out, bitnet_error *err);
bool bnet_cuda_user_done(const bnet_user_work *w);
bitnet_status bnet_cuda_user_wait(const bnet_user_work *w, bitnet_error *err);
bitnet_status bnet_cuda_user_times(const bnet_user_work *w, double *begin_ms, double *end_ms,
                                   bitnet_error *err);
void bnet_cuda_user_work_free(bnet_user_work *w);

#endif
