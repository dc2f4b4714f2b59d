/* time.h - how long the device works, by its own clock: pairs of stamps around launches or whole
 * passes, read long after, so that nothing waits for them.
 *
 * With a meter (statistics), a repeated pass is one span, and so is one whose kernels are launched
 * one by one, but for the first few, where each launch is: averages of single operations come from
 * those. While profiling, every launch is a span and nothing is repeated. */
#ifndef BNET_GPU_TIME_H
#define BNET_GPU_TIME_H

#include "backend/gpu/gpu.h"

/* Stamps of spans: two each, behind those of the ring of pinned memory. */
enum { GPU_SPANS = 64, GPU_SPAN_STAMPS = 16 };

typedef struct gpu_span {
    uint8_t entry;    /* bnet_op_entry */
    uint8_t n_counts; /* operations: 0 for further kernels of one */
    int8_t symbol;    /* -1: a whole pass */
    uint16_t slot;
} gpu_span;

/* One kernel of a row, while profiling. */
typedef struct gpu_timed {
    uint64_t n;
    double ms;
    gpu_dims dims; /* of the last launch */
} gpu_timed;

typedef struct gpu_timed_row {
    gpu_timed symbol[GPU_SYMBOLS];
} gpu_timed_row;

struct gpu_clock {
    gpu_span spans[GPU_SPANS]; /* a ring: [first, first + n) were not read yet */
    int first, n;
    bool in_pass;        /* a pass is timed as a whole */
    int n_single;        /* passes so far whose launches were timed one by one */
    gpu_timed_row *each; /* [BNET_KERNELS_MAX] while profiling, else NULL */
    double pair_ms;      /* two stamps with nothing between them */
};

/* Call these before and after a launch of this kernel. end takes what begin returned. */
int bnet_gpu_time_launch(gpu_backend *be, const gpu_launch *l);
void bnet_gpu_time_end(gpu_backend *be, int span);
/* Before a pass: work launched one by one, or a repetition. */
int bnet_gpu_time_pass(gpu_backend *be, bool repeated);
static inline bool gpu_profiling(const gpu_backend *be)
{
    return be->clock->each != NULL;
}
/* Adds the spans so far to the meter, waiting for the last. */
void bnet_gpu_time_read(gpu_backend *be);

/* Threads of a block for a kernel that takes any number: what keeps most of them on a
 * multiprocessor by the driver's word; 128 where several are alike. */
unsigned bnet_gpu_block(gpu_backend *be, const bnet_kernel_record *k);

/* Entries of the table. */
bool bnet_gpu_profile(bnet_backend *b, bool on);
size_t bnet_gpu_profile_read(bnet_backend *b, bitnet_kernel_time *out, size_t cap);
/* The registers, occupancy and other figures of a launch of that kernel. */
bitnet_launch bnet_gpu_launch_shape(gpu_backend *be, const bnet_kernel_record *k, int symbol,
                                    const gpu_dims *dims);

#endif
