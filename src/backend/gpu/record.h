/* record.h - passes that are recorded once and repeated: which ones there are, what each launched.
 */
#ifndef BNET_GPU_RECORD_H
#define BNET_GPU_RECORD_H

#include "backend/gpu/gpu.h"

enum { GPU_RECORDS = 96, GPU_RECORD_USES = 48 };

/* What must be the same for a recorded pass to serve. */
typedef struct gpu_record_key {
    int n_tokens, n_rows, n_seqs, n_tiles;
    size_t n_bytes; /* of the step */
    gpu_at last;    /* where results go */
    int kv_type, best;
} gpu_record_key;

typedef struct gpu_recorded {
    gpu_record_key key;
    uint32_t epoch;
    bool seen; /* ran once, so that all memory is there */
    gpu_graph graph;
    uint64_t last_used;
    uint32_t n_launches;
    int n_uses;
    struct {
        uint32_t slot, n;
    } uses[GPU_RECORD_USES]; /* of kernels, per repetition */
} gpu_recorded;

typedef struct gpu_records {
    gpu_recorded all[GPU_RECORDS];
    int n;
    uint64_t clock;
} gpu_records;

typedef void gpu_work(gpu_backend *be, void *user);

/* Does the work once, as it is, timed. */
void bnet_gpu_work(gpu_backend *be, gpu_work *work, void *user);
/* Does the work: the first time as it is, the second time recording it, then by repetition. Where
 * the driver cannot record it is done as it is; where recording fails, too (bnet_gpu_unrecord). */
void bnet_gpu_repeat(gpu_backend *be, gpu_records *r, const gpu_record_key *key, gpu_work *work,
                     void *user);
/* Recording failed, as it was noted: that is told once, forgotten, and nothing is recorded any
 * more; passes that would have been are launched, and counted. False: it is a failure of the step,
 * in strict mode or because the device is lost. */
bool bnet_gpu_unrecord(gpu_backend *be);
static inline void bnet_gpu_count_unrecorded(gpu_backend *be)
{
    atomic_fetch_add_explicit(&be->n_unrecorded, 1, memory_order_relaxed);
}
void bnet_gpu_records_free(gpu_backend *be, gpu_records *r);

#endif
