/* registry.h - the one truth on kernels. Every kernel of every backend is a record; selection,
 * listings, receipts, checks and tuning read the same records. Rows come from the backends'
 * kernels.inc or are registered at run time.
 *
 * Invariants: a record is copied on registration and never moves or changes; ids are unique; a
 * record whose ABI version is not ours is refused; selection never returns a record the device
 * cannot run. Safe from any thread. */
#ifndef BNET_REGISTRY_H
#define BNET_REGISTRY_H

#include <stdatomic.h>

#include "bitnet_kernel.h"
#include "device/device.h"
#include "ops/kernel_key.h"

enum { BNET_KERNELS_MAX = 1024 };

const char *
bnet_tier_name(bitnet_kernel_tier t); /* "reference", "optimized", "highly", "extremely" */

typedef void (*bnet_kernel_fn)(void); /* cast to the op's own type by the backend that owns it */

typedef struct bnet_kernel_record {
    const char *id; /* "linear_i2s.dotprod" */
    /* the key */
    bnet_device_kind device;
    bnet_op op;
    bnet_format format;
    bnet_dtype dtype; /* of the activations */
    /* what it is and wants */
    bnet_op_set fused; /* further operations it may do in the same call */
    const char *isa;   /* "dotprod", "sm_80", "" */
    bitnet_kernel_tier tier;
    uint64_t temp_bytes; /* scratch it takes for itself while it runs */
    uint32_t alignment;  /* of the weights, at which it runs best; any other must be right too */
    bitnet_dim_rule m, n, k;           /* rows of activations, outputs, inputs */
    uint64_t needs;                    /* of the device: bits that only its backend knows */
    const char *(*need_name)(int bit); /* what to call one in a message; NULL: it has no needs */
    const char *build;                 /* backend that must be compiled in: "cuda"; NULL: none */
    uint32_t abi;                      /* BITNET_KERNEL_ABI */
    const char *agreement;             /* "exact" or "close(4 ulp)" */
    bnet_kernel_fn fn;
    bnet_kernel_fn program; /* of a program, where fn is the backend's and calls it */
    bool outside;           /* registered by a program, not a row of the tree: wins ties of tier */
    uint32_t slot;          /* set by the registry: index for counters, < BNET_KERNELS_MAX */
} bnet_kernel_record;

/* What one device can do: checked per device, never globally. */
typedef struct bnet_capabilities {
    bnet_device_kind device;
    uint64_t has;    /* bits as in a record's needs; of a CPU already limited by the isa option */
    char level[32];  /* what the device calls it, for messages: "compute capability 9.0"; "" */
    uint32_t builds; /* bit per bnet_device_kind compiled in */
} bnet_capabilities;

/* A bit of needs: what engines have that were opened when such a kernel was registered. */
#define BNET_NEED_PROGRAM (UINT64_C(1) << 63)

typedef struct bnet_kernel_query {
    bnet_op op;
    bnet_format format;
    bnet_dtype dtype;
    uint64_t m, n, k; /* 0: not known, rules on it are not applied */
    bitnet_priority priority;
} bnet_kernel_query;

/* The query that a record's own key answers, of any size. */
static inline bnet_kernel_query bnet_query_for(const bnet_kernel_record *k)
{
    return (bnet_kernel_query){.op = k->op, .format = k->format, .dtype = k->dtype};
}
/* A query as programs write it, by names. Fails NOT_AVAILABLE if one is unknown or missing, in the
 * words of _select for a key that no kernel has. */
bitnet_status bnet_query_read(const bitnet_kernel_query *names, bnet_device_kind device,
                              bnet_kernel_query *out, bitnet_error *err);

typedef struct bnet_registry bnet_registry;

/* Holds the rows of every backend of backends.inc. < 5 ms. */
bitnet_status bnet_registry_open(bnet_registry **out, bitnet_error *err);
void bnet_registry_close(bnet_registry *r);
/* The kind of device of a name ("cuda"); BNET_DEV_COUNT: none. */
bnet_device_kind bnet_registry_kind(const char *name);
/* Copies the record. Fails ARGUMENT: duplicate id, wrong ABI, missing field, fn NULL; MEMORY: full.
 */
bitnet_status bnet_registry_add(bnet_registry *r, const bnet_kernel_record *k, bitnet_error *err);
size_t bnet_registry_count(const bnet_registry *r);
/* Changes whenever a record or a choice is added: what was selected before may be asked anew. */
uint32_t bnet_registry_generation(const bnet_registry *r);
const bnet_kernel_record *bnet_registry_at(const bnet_registry *r,
                                           size_t i); /* NULL past the end */
const bnet_kernel_record *bnet_registry_find(const bnet_registry *r, const char *id);

/* The first reason why this record cannot serve, "" if it can. Returns buf. */
const char *bnet_kernel_veto(const bnet_kernel_record *k, const bnet_capabilities *c,
                             const bnet_kernel_query *q, char *buf, size_t cap);
/* Some compatible record exists for the key (sizes not considered). */
bool bnet_registry_has(const bnet_registry *r, const bnet_capabilities *c, bnet_op op,
                       bnet_format format, bnet_dtype dtype);
/* Compatibility, then the tuning cache's word for this shape if there is one, else the best tier
 * (on ties one from outside the tree, then the earlier row). Fails NOT_AVAILABLE:
 * UnsupportedKernelConfiguration (no record of that key) or NoCompatibleKernel (lists each
 * candidate with the one reason that vetoed it). */
bitnet_status bnet_registry_select(const bnet_registry *r, const bnet_capabilities *c,
                                   const bnet_kernel_query *q, const bnet_kernel_record **out,
                                   bitnet_error *err);

/* Several keys whose kernel depends on no shape; stops at the first that has none. */
typedef struct bnet_fixed {
    bnet_op op;
    bnet_format format; /* dtype: F32 */
    const bnet_kernel_record **to;
} bnet_fixed;
bitnet_status bnet_registry_select_all(const bnet_registry *r, const bnet_capabilities *c,
                                       const bnet_fixed *fixed, size_t n, bitnet_error *err);
/* The kernel of q for m tokens, NULL: none takes that many. What was selected is remembered by
 * class of m until the registry changes: bits 63..32 that number, 31..16 the registry's
 * generation, 15..0 the record's slot; zero: nothing yet. Any thread. */
typedef struct bnet_picks {
    atomic_uint_fast64_t word[10];
} bnet_picks;
const bnet_kernel_record *bnet_registry_pick(const bnet_registry *r, const bnet_capabilities *c,
                                             const bnet_kernel_query *q, size_t m,
                                             bnet_picks *picks);

/* ---- tuning: measured choices, valid for one machine and one version ---- */

/* "cpu / brand / features / version", of a GPU also its name, memory, multiprocessors and the
 * driver's version: a cache with another key is ignored. c: of that device. */
void bnet_tuning_key(const bnet_capabilities *c, const bnet_devices *d, int index, bnet_str *out);
/* Sizes of M that share one choice: 1, 2, 3..4, 5..8, ... 257..512, more. Returns the largest of
 * the class (512 for "more"); 0 stays 0. */
uint64_t bnet_tuning_m(uint64_t m);
/* Adds or replaces one choice: this kernel for (op, format, dtype, class of m, n, k). Fails
 * ARGUMENT: no such kernel, or one of another key. */
bitnet_status bnet_registry_tune(bnet_registry *r, const bnet_kernel_query *q,
                                 const char *kernel_id, bitnet_error *err);
/* JSON file {key, version, choices: [...]}, temp file + rename. Loading a missing file or another
 * key's is OK with *used = false and a log line; a malformed one is an IO/ARGUMENT error naming the
 * place. */
bitnet_status bnet_registry_save_tuning(const bnet_registry *r, const char *key, const char *path,
                                        bitnet_error *err);
bitnet_status bnet_registry_load_tuning(bnet_registry *r, const char *key, const char *path,
                                        const bnet_log *log, bool *used, bitnet_error *err);
/* A choice the device can run exists for the query's key, n and k and some number of tokens. */
bool bnet_registry_tuned(const bnet_registry *r, const bnet_capabilities *c,
                         const bnet_kernel_query *q);
size_t bnet_registry_choices(const bnet_registry *r); /* how many there are */

/* ---- refining: choices by the timings of real calls, off until somebody asks for it ---- */

typedef struct bnet_trial bnet_trial;
void bnet_registry_refine(bnet_registry *r, bool on);
bool bnet_registry_refines(const bnet_registry *r);
/* Before a call for q (all sizes known) by *k: another kernel may take a turn, which replaces *k;
 * then the caller tells its time. NULL: nothing is to be timed. Any thread. */
bnet_trial *bnet_trial_begin(const bnet_registry *r, const bnet_capabilities *c,
                             const bnet_kernel_query *q, const bnet_kernel_record **k);
/* Are kernels of this shape still to be timed? */
bool bnet_trial_open(const bnet_registry *r, const bnet_capabilities *c,
                     const bnet_kernel_query *q);
/* After the call by k of m tokens. Returns a kernel that serves the shape from now on; NULL: all is
 * as it was, or it is not settled. */
const bnet_kernel_record *bnet_trial_end(const bnet_registry *r, bnet_trial *t,
                                         const bnet_kernel_record *k, size_t m, double ms);

#endif
