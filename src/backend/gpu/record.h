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
    uint64_t last;  /* the id of the buffer that gets the results */
    int kv_type, best;
    uint32_t blocks; /* of a token in attention, where that depends on positions */
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

/* The record of this key among the first `cap`; else an empty one, in the place of the least
 * recently used if need be. One whose epoch is another has been emptied. */
gpu_recorded *bnet_gpu_record_find(gpu_backend *be, gpu_records *r, int cap,
                                   const gpu_record_key *key, uint32_t epoch);
void bnet_gpu_record_forget(gpu_backend *be, gpu_recorded *g);
/* Notes what a recording launched. */
void bnet_gpu_record_note(gpu_recorded *g, const uint32_t counts[BNET_KERNELS_MAX],
                          uint32_t n_launches, uint32_t epoch);
/* Repeats the work and counts its kernels; a failure is noted. */
void bnet_gpu_record_replay(gpu_backend *be, const gpu_recorded *g);

/* Does the work once by launches, timed. */
void bnet_gpu_work(gpu_backend *be, gpu_work *work, void *user);
/* Does the work: the first time by launches, the second time recording it, then by repetition.
 * Where the driver cannot record, or recording fails (bnet_gpu_unrecord), it is always launched. */
void bnet_gpu_repeat(gpu_backend *be, gpu_records *r, const gpu_record_key *key, gpu_work *work,
                     void *user);
/* Call it when recording has failed and the failure is noted. Warns, clears the failure, and turns
 * recording off for the backend's life: passes that would have been recorded are launched, and
 * counted. Returns false where the failure stays the step's: in strict mode, or if the device is
 * lost. */
bool bnet_gpu_unrecord(gpu_backend *be);
static inline void bnet_gpu_count_unrecorded(gpu_backend *be)
{
    atomic_fetch_add_explicit(&be->n_unrecorded, 1, memory_order_relaxed);
}
void bnet_gpu_records_free(gpu_backend *be, gpu_records *r);

#endif
