/* bitnet_check.h - is it right, and what did a run really do: receipts, validation, the bridge to
 * another implementation, health, self-test.
 *
 * The rules of bitnet.h hold (errors, ownership, threads); there is no promise of stability between
 * versions. */
#ifndef BITNET_CHECK_H
#define BITNET_CHECK_H

#include "bitnet_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- receipts: what a run really did, checkable afterwards (docs/receipt.schema.json) ---- */

typedef struct bitnet_receipt bitnet_receipt;

/* What the caller knows of the run. */
typedef struct bitnet_receipt_facts {
    size_t struct_size;
    bool deterministic; /* the run was repeated with the same seed and the tokens were compared */
    bool identical;     /* they were the same */
    int n_runs;         /* default 1 */
    uint64_t seed;
    size_t n_generated;
    double total_ms;                   /* from the call to the last token, prompt included */
    double first_token_ms;             /* from the call to the first token */
    double decode_ms;                  /* from the first token to the last */
    int n_passed, n_failed, n_skipped; /* checks the caller made */
    bool deterministic_asked;          /* the caller wants the same tokens for the same seed,
                                          whether or not the run was repeated */
    /* NULL: all that the engine computed since _open. Else one answer: the kernels that computed
     * this session's tokens since it was opened (bitnet_session_kernels), and how many of their
     * calls served other sessions too */
    const bitnet_session *session;
    /* What went in and what came out: the receipt has their SHA-256, not themselves. */
    const int32_t *prompt_ids, *output_ids;
    size_t n_prompt, n_output; /* n_output: 0, or n_generated */
    const char *text;          /* that the output is, n_text bytes */
    size_t n_text;
    const char *finish; /* why it ended: "eos", "stop", "length", "cancelled", "timeout"; or NULL */
    /* What made it and how, recorded as given so that it can be made again: a name ("" or NULL: a
     * program of your own; "run" and "chat" are the command's) and its options, NAME=VALUE. */
    const char *command;
    const char *const *flags;
    size_t n_flags;
} bitnet_receipt_facts;

BITNET_API void bitnet_receipt_facts_init(bitnet_receipt_facts *facts);
/* Begins a receipt: kernel calls are counted from here on. Close it before the engine. */
BITNET_API bitnet_status bitnet_receipt_open(bitnet_engine *engine, bitnet_receipt **out,
                                             bitnet_error *err);
BITNET_API void bitnet_receipt_close(bitnet_receipt *receipt);
/* Digests the model file ahead of the first _write, which then need not. `each` (NULL: nothing) is
 * called after every megabyte: it may take its time, or cancel by returning false. Fails:
 * CANCELLED, MEMORY. */
BITNET_API bitnet_status bitnet_receipt_digest(bitnet_receipt *receipt, bitnet_progress_fn each,
                                               void *user, bitnet_error *err);
/* Measures how fast the weights can be read, digests the model file (once per receipt) and writes
 * what happened since _open, or what facts->session did, to `path`, through a temporary file that
 * is renamed. May be called again. Fails: ARGUMENT (a session of another engine), IO, MEMORY. */
BITNET_API bitnet_status bitnet_receipt_write(bitnet_receipt *receipt,
                                              const bitnet_receipt_facts *facts, const char *path,
                                              bitnet_error *err);
/* The same bytes through a function, in order, which cancels by returning false. */
BITNET_API bitnet_status bitnet_receipt_write_to(bitnet_receipt *receipt,
                                                 const bitnet_receipt_facts *facts,
                                                 bitnet_bytes_fn write, void *user,
                                                 bitnet_error *err);

typedef struct bitnet_verify_options {
    size_t struct_size;
    bool require_gpu;              /* the receipt must show GPU kernels */
    const char *model_path;        /* NULL: any model; else the digest must be this file's */
    const bitnet_runtime *runtime; /* kernels registered there are known too; NULL: only ours */
    const char
        *public_key; /* NULL: unsigned ones pass, too; else it must be signed with this key */
} bitnet_verify_options;

BITNET_API void bitnet_verify_options_init(bitnet_verify_options *options);
/* Applies every gate in order. Fails RECEIPT at the first gate that the receipt does not pass, with
 * its number in the message and in *gate (may be NULL; 0: all were passed); IO, MEMORY. */
BITNET_API bitnet_status bitnet_receipt_verify(const char *path,
                                               const bitnet_verify_options *options, int *gate,
                                               bitnet_error *err);
/* A new pair of keys for signatures (Ed25519), as 64 hexadecimal digits each. Fails: ERROR. */
BITNET_API bitnet_status bitnet_receipt_key(char secret[65], char public_key[65],
                                            bitnet_error *err);
/* Signs the receipt at `path`, which must pass every gate, and writes it again. Fails: ARGUMENT
 * (secret), RECEIPT, IO, MEMORY, ERROR. */
BITNET_API bitnet_status bitnet_receipt_sign(const char *path, const char *secret,
                                             bitnet_error *err);
/* The i-th gate, counted from 0: its number and what it asks for; false past the end. */
BITNET_API bool bitnet_gate_at(int i, int *number, const char **text);

/* ---- bridge: another implementation as a plugin, to compare with (docs/BRIDGE.md) ---- */

#define BITNET_BRIDGE_ABI 1

/* What a plugin exports under the names bitnet_bridge_init, _cleanup, _available, _matmul_i2s,
 * _quantize, _last_error. Functions that return int: 0 is success. */
typedef int bitnet_bridge_init_fn(int abi); /* BITNET_BRIDGE_ABI; called once, first */
typedef void bitnet_bridge_cleanup_fn(void);
typedef int bitnet_bridge_available_fn(void); /* 1: it can compute here; 0: it cannot */
/* They compute what bitnet_matmul_i2s and bitnet_quantize (rule absmean) of bitnet_extras.h do. */
typedef int bitnet_bridge_matmul_fn(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n,
                                    size_t k);
typedef int bitnet_bridge_quantize_fn(int qtype, const float *in, size_t n, uint8_t *out,
                                      size_t n_out, float *scales, size_t n_scales);
typedef const char *bitnet_bridge_error_fn(void); /* why the last call failed; may be NULL */
/* One more, bitnet_bridge_linear_i2s, is of type bitnet_fn_ternary (bitnet_kernel.h); a plugin that
 * has it can serve. */

typedef struct bitnet_bridge bitnet_bridge;

/* Loads and starts a plugin. A bridge may be used by one thread at a time. Fails NOT_AVAILABLE with
 * "ffi bridge unavailable" if path is NULL or "", there is no such file or the plugin says that it
 * is not available; with a message that names the reason if the plugin cannot be loaded, lacks a
 * function or fails to start. */
BITNET_API bitnet_status bitnet_bridge_open(const char *path, bitnet_bridge **out,
                                            bitnet_error *err);
/* Close the runtimes it serves before. */
BITNET_API void bitnet_bridge_close(bitnet_bridge *bridge);
/* Registers the plugin's kernel of I2_S matrices as linear_i2s.ffi, of the provider "ffi": engines
 * of this runtime use it where no native kernel but the plain C ones can run (isa "scalar"), or
 * where a tuning cache says so. Fails: NOT_AVAILABLE (the plugin has no such function), ARGUMENT
 * (one serves already), MEMORY. */
BITNET_API bitnet_status bitnet_bridge_serve(bitnet_runtime *runtime, bitnet_bridge *bridge,
                                             bitnet_error *err);

typedef struct bitnet_comparison {
    uint64_t native_ns, reference_ns; /* best of three after a warm-up */
    bool accuracy_match;              /* integers equal, floats within 1e-5 relative */
    double max_error;
    double improvement;         /* reference_ns / native_ns - 1 */
    bool migration_recommended; /* match, and improvement >= -0.1 */
    bool release_gate;          /* match, and at least 95 % of the reference's speed */
} bitnet_comparison;

/* Judges given times, without measuring. */
BITNET_API bitnet_comparison bitnet_compare_times(uint64_t native_ns, uint64_t reference_ns,
                                                  bool accuracy_match, double max_error);
/* Times and compares the fastest native function of this runtime and the plugin's on the same
 * random input. Fails ERROR (the plugin reported a failure, whose text is in the message),
 * ARGUMENT, MEMORY. */
BITNET_API bitnet_status bitnet_bridge_compare_matmul(const bitnet_runtime *runtime,
                                                      bitnet_bridge *bridge, size_t m, size_t n,
                                                      size_t k, bitnet_comparison *out,
                                                      bitnet_error *err);
BITNET_API bitnet_status bitnet_bridge_compare_quantize(const bitnet_runtime *runtime,
                                                        bitnet_bridge *bridge, bitnet_qtype type,
                                                        size_t n, bitnet_comparison *out,
                                                        bitnet_error *err);
/* The same of the kernel that models are computed with, packing and threads as they would be: n x k
 * ternary weights times m tokens. *kernel (may be NULL) is set to its id, borrowed from the
 * runtime. The plugin's side is bitnet_bridge_linear_i2s if it has that, else
 * bitnet_bridge_matmul_i2s. Fails also ARGUMENT if k is no multiple of 128. */
BITNET_API bitnet_status bitnet_bridge_compare_linear(const bitnet_runtime *runtime,
                                                      bitnet_bridge *bridge, size_t m, size_t n,
                                                      size_t k, const char **kernel,
                                                      bitnet_comparison *out, bitnet_error *err);

/* ---- validation ---- */

typedef enum bitnet_verdict {
    BITNET_VERDICT_PASS = 0,
    BITNET_VERDICT_FAIL = 1,
    BITNET_VERDICT_SKIP = 2, /* could not be checked; the note says why */
} bitnet_verdict;

enum { /* parts of a validation */
       BITNET_VALIDATE_ACCURACY = 1,
       BITNET_VALIDATE_PERFORMANCE = 2,
       BITNET_VALIDATE_MEMORY = 4,
       BITNET_VALIDATE_MODEL = 8,
       BITNET_VALIDATE_GOLDEN = 16,
       BITNET_VALIDATE_BRIDGE = 32,
};

typedef struct bitnet_validate_options {
    size_t struct_size;
    const char *device;     /* what is checked: NULL or "auto": what the runtime computes on; "cpu",
                               "cpu:ISA", or any name the runtime's option takes */
    const char *against;    /* what counts as right: default "cpu:scalar"; kernels registered by
                               programs and tuned choices are never used for it */
    const char *model_path; /* NULL: kernels alone */
    const char *golden_dir; /* with golden.json; needs model_path. NULL: skipped */
    bitnet_bridge *bridge;  /* NULL: skipped */
    unsigned parts;         /* BITNET_VALIDATE_...; 0: all. The others are skipped */
    bool quick;             /* small shapes, few rounds */
    bitnet_i2s_layout i2s_layout;
    bitnet_cancel_fn cancel; /* polled between cases: true ends with CANCELLED; may be NULL */
    void *cancel_user;
    const char *kernel; /* check only the kernel with this id; NULL: all. Fails ARGUMENT if the
                           registry has no such kernel */
    bitnet_progress_fn on_progress; /* told the share of the usual time that is over; may be NULL */
    void *progress_user;
} bitnet_validate_options;

/* One kernel, one shape. Texts live as long as the runtime. */
typedef struct bitnet_accuracy {
    const char *kernel, *op, *format, *dtype, *agreement;
    uint64_t m, n, k;
    bitnet_verdict verdict;
    double max_error; /* largest difference, as a share of the largest value of its row */
    double bound;     /* the largest max_error that passes; 0: equal bits are required */
    char note[160];   /* what it was compared with; what differs; why it was skipped */
} bitnet_accuracy;

typedef struct bitnet_performance {
    const char *kernel, *op, *format, *dtype;
    uint64_t m, n, k;
    double device_ms; /* the operation until the device is done; median, after a warm-up */
    double wall_ms;   /* the same with copying the input there and the result back */
    double reference_ms, speedup; /* wall time of the reference; reference_ms / wall_ms */
    double gflops;                /* 2 m n k / device_ms */
} bitnet_performance;

typedef struct bitnet_memory_result {
    bitnet_verdict verdict;
    int n_rounds;                    /* engine, session, generation, all closed again */
    uint64_t start_bytes, end_bytes; /* resident, after warming up and at the end */
    int64_t growth_bytes;            /* within 1 MiB is a pass */
    char note[160];
} bitnet_memory_result;

/* The whole model on both, operation by operation. */
typedef struct bitnet_model_result {
    bitnet_verdict verdict;
    uint64_t n_tokens, n_ops, n_values, n_differ, n_ties;
    double max_error;
    /* the first difference, if n_differ > 0 */
    char op[24], tensor[64];
    int layer;        /* -1: outside the layers */
    int position;     /* of the token */
    uint64_t element; /* inside its row */
    double got, want;
    char kernels[96], reference_kernels[96];
    char note[160];
} bitnet_model_result;

typedef struct bitnet_golden_result {
    bitnet_verdict verdict;
    uint64_t n_prompts, n_positions, n_argmax, n_wrong;
    double
        min_cosine; /* a pass needs 0.998, and the right argmax where its margin is 0.5 or more */
    char note[160];
} bitnet_golden_result;

typedef struct bitnet_bridge_result {
    bitnet_verdict verdict;
    bitnet_comparison matmul, quantize;       /* of unpacked codes; of floats to I2_S */
    bitnet_comparison one_token, many_tokens; /* the kernels of models */
    const char *one_kernel, *many_kernel;     /* which these are */
    char note[160];                           /* why it failed or was skipped */
} bitnet_bridge_result;

typedef struct bitnet_validation {
    bool success; /* nothing failed */
    const char *device, *against;
    bitnet_accuracy *accuracy;
    size_t n_accuracy;
    bitnet_performance *performance;
    size_t n_performance;
    bitnet_memory_result memory;
    bitnet_model_result model;
    bitnet_golden_result golden;
    bitnet_bridge_result bridge;
} bitnet_validation;

BITNET_API void bitnet_validate_options_init(bitnet_validate_options *options);
/* Checks every kernel of the runtime's registry on several shapes, their speed, the model, memory,
 * golden logits and the bridge. A difference is a result, not a failure: the status is OK and
 * success is false. Fails: ARGUMENT, NOT_COMPILED, NOT_AVAILABLE (device), IO, MODEL, TOKENIZER,
 * MEMORY. */
BITNET_API bitnet_status bitnet_validate(bitnet_runtime *runtime,
                                         const bitnet_validate_options *options,
                                         bitnet_validation **out, bitnet_error *err);
BITNET_API void bitnet_validation_free(bitnet_validation *validation);
/* As one JSON object. *n_bytes is always set; at most cap bytes are written, no NUL. Fails:
 * ARGUMENT (cap too small: call again), MEMORY. */
BITNET_API bitnet_status bitnet_validation_json(const bitnet_validation *validation, char *out,
                                                size_t cap, size_t *n_bytes, bitnet_error *err);

/* ---- health: a quick look for servers ---- */

typedef struct bitnet_health {
    size_t struct_size;
    bool healthy;    /* all three */
    bool memory_ok;  /* the host has memory left */
    bool compute_ok; /* one of the model's matrices times a vector is what the file says */
    bool cache_ok;   /* a key and value written are read back by attention */
    uint64_t memory_available, process_bytes;
    double elapsed_ms;
    char detail[240]; /* "" or what is wrong */
} bitnet_health;

BITNET_API void bitnet_health_init(bitnet_health *health);
/* Takes well below 100 ms; may be called from any thread while sessions run. An unhealthy engine is
 * a result: the status is OK. Fails: ARGUMENT (vocab_only), MEMORY, ERROR (the device). */
BITNET_API bitnet_status bitnet_health_check(bitnet_engine *engine, bitnet_health *health,
                                             bitnet_error *err);
/* One JSON object into buf, cut at cap, NUL-terminated; returns the length of the whole. */
BITNET_API size_t bitnet_health_json(const bitnet_health *health, char *buf, size_t cap);

/* ---- self-test: does the CPU compute with the instructions it says it has? ----
 *
 * Virtual machines and emulators may advertise what they cannot run. The test runs every kind of
 * operation once, small, with the kernels an engine would choose for `isa` (NULL: the best), and
 * compares with the scalar ones bit for bit. It takes a few milliseconds, uses the calling thread
 * alone and keeps nothing. An instruction that does not exist raises SIGILL there, so call it in a
 * child process, as the command does. */

/* Names of instruction sets, of any architecture, lowest first; NULL past the end. */
BITNET_API const char *bitnet_isa_at(int i);
/* Fails: ARGUMENT (no such isa), NOT_AVAILABLE (the CPU does not claim to have it), MISMATCH (a
 * result is wrong), MEMORY. */
BITNET_API bitnet_status bitnet_isa_self_test(const char *isa, bitnet_error *err);
/* Does the CPU say that it is a virtual one (x86-64 under a hypervisor or emulator)? Then what it
 * claims to have should be tested. */
BITNET_API bool bitnet_cpu_is_virtual(void);

#ifdef __cplusplus
}
#endif
#endif
