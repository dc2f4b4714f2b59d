/* bitnet.h - run 1.58-bit (ternary) language models. This header is the manual.
 *
 * Four nouns, one lifetime each:
 *
 *   runtime   threads, log sink, choice of CPU instruction set   opened once per process (or more)
 *   engine    one model file, loaded, immutable                  opened on a runtime
 *   session   one timeline of tokens with its key/value cache    opened on an engine
 *   sampler   one stream of random choices                       stands alone
 *
 * The shortest useful program: open a runtime, an engine on it, a session on that, a sampler; call
 * bitnet_tokenize, then bitnet_generate with a callback; close in reverse order. README.md has it.
 *
 * Errors.  Functions that can fail return a bitnet_status and take a `bitnet_error *err` last,
 * which may be NULL. Out parameters are written only on success unless the comment says otherwise.
 * The message in `err` names the file, the field, the value and where possible the remedy. NULL
 * where an object or a place for the result is needed is ARGUMENT, or NULL, 0, false where there
 * is no status. The library never exits, aborts, prints, or reads the environment.
 *
 * Ownership.  What a function named _open gives you, its _close takes back; _close(NULL) is legal.
 * A returned `const` pointer is borrowed and lives as long as the object it was asked of, unless
 * the comment says less. Close sessions before their engine, engines before their runtime. Closing
 * a session, a sampler or a batch that a call works with, or a cache pool that has sessions, is an
 * error: the object stays open, and a session or a pool says so in the log.
 *
 * Threads.  An engine may be used from any number of threads at once. A session or a sampler serves
 * one thread at a time. Callbacks run on the thread that called. A callback may read the session
 * that its call works with (position, tokens; from on_text also logits, and fork it) and must not
 * change it: a call that would, on this thread or another, fails with ARGUMENT, as does one that
 * would choose with the sampler of a call, or use its batch. A stack of 64 KB is enough for any
 * call, besides what callbacks need.
 *
 * Growing.  Option structs begin with `struct_size`, set by their _init function, so a program
 * compiled against an older header keeps working: always call _init, then change fields.
 */
#ifndef BITNET_H
#define BITNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITNET_VERSION     "0.1.0"
#define BITNET_API_VERSION 2

#if defined(__GNUC__)
#define BITNET_API          __attribute__((visibility("default")))
#define BITNET_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define BITNET_API
#define BITNET_PRINTF(f, a)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status -------------------------------------------------------------------------------- */

/* name, number, text. The numbers 0..14 are also the exit codes of the `bitnet` command. */
#define BITNET_STATUS_MAP(X)                                                                       \
    X(OK, 0, "ok")                                                                                 \
    X(ERROR, 1, "error")                                                                           \
    X(ARGUMENT, 2, "invalid argument")                                                             \
    X(MODEL, 3, "bad or unsupported model")                                                        \
    X(TOKENIZER, 4, "bad or unsupported tokenizer")                                                \
    X(IO, 5, "input/output error")                                                                 \
    X(MEMORY, 6, "out of memory")                                                                  \
    X(MISMATCH, 7, "result differs from its reference")                                            \
    X(SUSPICIOUS, 8, "suspicious weights")                                                         \
    X(PERFORMANCE, 9, "performance gate")                                                          \
    X(MEMORY_GATE, 10, "memory gate")                                                              \
    X(NOT_COMPILED, 11, "not compiled in")                                                         \
    X(NOT_AVAILABLE, 12, "not available on this machine")                                          \
    X(RECEIPT, 13, "receipt refused")                                                              \
    X(VANISHED, 14, "model file changed while in use")                                             \
    X(CONTEXT, 15, "context is full")                                                              \
    X(CANCELLED, 16, "cancelled")                                                                  \
    X(AGAIN, 17, "not done yet: call again")

typedef enum bitnet_status {
#define BITNET_STATUS_ENUM(name, number, text) BITNET_##name = number,
    BITNET_STATUS_MAP(BITNET_STATUS_ENUM)
#undef BITNET_STATUS_ENUM
} bitnet_status;

#define BITNET_MESSAGE_MAX 768

/* What went wrong, for people. Filled once, where the failure is known. */
typedef struct bitnet_error {
    bitnet_status status;
    char message[BITNET_MESSAGE_MAX];
} bitnet_error;

/* The text of a status ("out of memory"); never NULL, also for numbers that are no status. */
BITNET_API const char *bitnet_status_text(bitnet_status status);

/* How far something long has come: `done` of `total`, counted as the option that takes it says.
 * Called on the thread that called, now and then; `done` never falls and reaches `total` unless the
 * call fails. False: cancel, the call fails with CANCELLED. */
typedef bool (*bitnet_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Asked by calls that may take long, on the thread that called, every few milliseconds of waiting
 * or of tokenizing, and between tensors or layers. True: the call fails with CANCELLED and leaves
 * things as its comment says. Given to an engine (bitnet_engine_options) or a session
 * (bitnet_session_on_cancel). */
typedef bool (*bitnet_cancel_fn)(void *user);

/* A ready-made answer: yes when a time is over, or when another thread or a signal handler said so.
 * Any number of calls and threads may share one. */
typedef struct bitnet_limit {
    uint64_t end_ns; /* set by the functions below alone */
    int ended;
} bitnet_limit;

/* Begins: so many milliseconds from now; 0: no time. */
BITNET_API void bitnet_limit_set(bitnet_limit *limit, double ms);
/* Ends it now. From any thread; async-signal-safe. */
BITNET_API void bitnet_limit_end(bitnet_limit *limit);
/* A bitnet_cancel_fn whose user is a limit. */
BITNET_API bool bitnet_limit_reached(void *limit);

BITNET_API const char *bitnet_version(void);
BITNET_API int bitnet_api_version(void);

/* ---- runtime ------------------------------------------------------------------------------- */

typedef enum bitnet_log_level {
    BITNET_LOG_ERROR = 0,
    BITNET_LOG_WARN = 1,
    BITNET_LOG_INFO = 2,
    BITNET_LOG_DEBUG = 3,
} bitnet_log_level;

/* `module` is a short name ("gguf", "tokenizer", "cpu"); `message` has no newline. Never prompt
 * text. */
typedef void (*bitnet_log_fn)(void *user, bitnet_log_level level, const char *module,
                              const char *message);

/* AUTO: where there is a thread for every CPU or core of the affinity mask and no quota. Threads
 * the program itself calls from are never moved, unless they ask (bitnet_engine_pin_caller). */
typedef enum bitnet_pin {
    BITNET_PIN_AUTO = 0,
    BITNET_PIN_ON = 1,
    BITNET_PIN_OFF = 2,
} bitnet_pin;

typedef struct bitnet_runtime_options {
    size_t struct_size;
    int n_threads;     /* 0: one for each core the process may use (second threads of a core and
                          slow cores that would hold up the fast ones left out, affinity mask and
                          control group respected) */
    const char *isa;   /* NULL: the best this CPU has; else "scalar", "neon", "dotprod", "avx2": the
                          highest instruction set kernels may use. Unknown or absent: an error */
    bitnet_log_fn log; /* NULL: silent */
    void *log_user;
    bool strict; /* a weight type without a kernel is an error; without it such weights take a
                    slow dequantised fallback, with a warning */
    const char *tuning_path; /* cache of measured kernel choices (bitnet_runtime_tune), read at
                          open; NULL: none. Missing, or made on another machine or version: ignored
                          with a log line. Malformed: an error */
    /* what to compute on: NULL or "auto" takes a GPU this build can use, else the CPU; "cpu",
     * "gpu", "cuda[:i]" (or a list of these, see split), "hip", "oneapi", "opencl", "vulkan",
     * "metal", "npu", "host" (the GPU code on plain memory, for tests; slow) take that or fail */
    const char *device;
    const char *device_origin;   /* who wants that device, for messages; NULL: "device" */
    const char *fake_gpu;        /* devices to pretend for tests of detection ("cuda,rocm"; "none");
                                    they are listed and never compute. NULL: look at the machine.
                                    Ignored with a warning in strict mode */
    bool no_fake_gpu;            /* fake_gpu naming a device is an error */
    const char *visible_devices; /* what CUDA_VISIBLE_DEVICES says, to explain what it hides */
    bool statistics; /* time every operation for bitnet_engine_stats; counters are kept anyway */
    bitnet_pin pin;  /* worker threads stay on one CPU each */
    /* how a model is divided among the devices that `device` lists ("cuda:0,cuda:1"; all of them
     * where it has no index): "layer", "tensor", "none". NULL: "layer" for a list, else "none" */
    const char *split;
    bool refine; /* for processes that run long: on the CPU, the exact kernels of each matrix shape
                    take turns in the first passes, are timed there, and the fastest serves from
                    then on; results have the same bits. bitnet_runtime_tune keeps what it measured,
                    this ends with the runtime */
} bitnet_runtime_options;

typedef struct bitnet_runtime bitnet_runtime;

BITNET_API void bitnet_runtime_options_init(bitnet_runtime_options *options);

/* Looks for devices, chooses one, starts the threads. `options` may be NULL (all defaults). Fails:
 * ARGUMENT, NOT_COMPILED (this build has no backend for the device), NOT_AVAILABLE, MEMORY. */
BITNET_API bitnet_status bitnet_runtime_open(const bitnet_runtime_options *options,
                                             bitnet_runtime **out, bitnet_error *err);
BITNET_API void bitnet_runtime_close(bitnet_runtime *runtime);
BITNET_API int bitnet_runtime_threads(const bitnet_runtime *runtime);
/* "requested=auto detected=[cpu] selected=cpu": the bytes that were logged (module "device", level
 * INFO) and that receipts hold. */
BITNET_API const char *bitnet_runtime_summary(const bitnet_runtime *runtime);

/* The i-th compiled backend's name ("cpu"), or NULL past the end. */
BITNET_API const char *bitnet_backend_list(int i);

/* ---- engine -------------------------------------------------------------------------------- */

/* How the 2-bit codes of an I2_S tensor lie in its bytes. Files do not say; 128/32 is what every
 * published file has. The others are for files made by builds that packed differently. */
typedef enum bitnet_i2s_layout {
    BITNET_I2S_128 = 0,  /* 128 weights in 32 bytes, the canonical form */
    BITNET_I2S_64 = 1,   /* 64 weights in 16 bytes (some ARM builds since 2025-11) */
    BITNET_I2S_4ROW = 2, /* four rows per byte */
} bitnet_i2s_layout;

/* In what type a GPU multiplies float matrices; sums are floats always. Ternary matrices are
 * integers whatever this says, Q8_0 and Q6_K ones stay as they are in the file. */
typedef enum bitnet_precision {
    BITNET_PRECISION_FP32 = 0, /* weights as in the file, inputs and products floats */
    BITNET_PRECISION_FP16 =
        1, /* weights of floats are kept as halves, inputs are rounded to them */
    BITNET_PRECISION_BF16 = 2, /* the same with the range of floats and 8 bits of them */
    BITNET_PRECISION_AUTO = 3, /* BF16 where the device has it, else FP16, else FP32 */
} bitnet_precision;
BITNET_API const char *bitnet_precision_text(bitnet_precision precision); /* "fp16"; "auto" */

typedef struct bitnet_engine_options {
    size_t struct_size;
    bitnet_i2s_layout i2s_layout;
    bool vocab_only;         /* load the tokenizer alone: no weights needed, sessions are refused */
    const char *policy_path; /* JSON file with allowed ranges of tensors' root mean squares
                                (docs/TROUBLESHOOTING.md); outside: SUSPICIOUS. NULL: none */
    /* Where the packed form of the weights is kept between runs, so that the next load of the same
     * file maps it, and the file's checksum once a receipt wanted it. Made if it is missing; what
     * cannot be written there is done without. A folder or file that belongs to somebody else, or
     * that others may write to, is not used, with a warning. NULL: nothing is kept */
    const char *cache_dir;
    uint64_t cache_max_bytes; /* of all our files there; the longest unused go. 0: 8 GiB */
    uint64_t cache_min_bytes; /* a smaller packed form is not kept. 0: 64 MiB */
    bool no_pack;        /* leave weights as they lie in the file: less memory of our own, slower */
    bool gpu_specialise; /* CUDA: kernels compiled at run time for the model's shapes are preferred
                            (NVRTC must be installed, else those of the build serve, with a
                            warning; an error on a strict runtime); kept below cache_dir */
    /* A device that has no FP16 or BF16 (the CPU among them), or whose kernels for it fail the
     * check made here, computes in FP32, with a warning; on a strict runtime that is an error. A
     * kernel that is missing is an error, but for AUTO, which takes the next */
    bitnet_precision precision;
    bool nvtx; /* CUDA: mark passes, their phases and tensors on their way for NVIDIA's profilers */
    const char *nvrtc_path; /* the run-time compiler's library, and no other; NULL: the system's */
    bitnet_progress_fn on_progress; /* bytes of weights checked and prepared; NULL: not told. With
                                       vocab_only there are none */
    void *progress_user;
    /* A timeline's logits have the same bits whatever else is in its steps. On the CPU they always
     * have. A GPU then computes every step by the same kernels, however many timelines are in it:
     * norms and attention sum in one fixed order, the head takes at most 8 rows at a time, and the
     * kernel that computes all layers of a single token is not used, which costs up to half the
     * speed of one timeline (docs/SPEED.md). Prompts have to reach the session in the same pieces:
     * a piece of one token is a step. A cache that is computed again is computed in the pieces in
     * which its tokens came (blocks from a file or the prefix cache: in passes of n_batch). False
     * (default): the fastest kernels for the number of timelines; last bits of logits differ
     * between numbers of timelines */
    bool batch_invariant;
    /* Asked while the engine is opened, while bitnet_tokenize works (by several threads at a time,
     * if several call), and by sessions that have no other. NULL: nobody is asked */
    bitnet_cancel_fn cancel;
    void *cancel_user;
    /* A folder that gets one JSON file for every tensor computed: name, shape, SHA-256, root mean
     * square (docs/CROSSVAL.md); made if it is missing, and refused (IO) if it holds JSON files.
     * Passes are then made of single operations, one at a time, and every result is read: slow. Not
     * for several devices together. NULL: none */
    const char *trace_dir;
} bitnet_engine_options;

/* How a file's own chat template (tokenizer.chat_template) relates to the form chosen. */
typedef enum bitnet_template_match {
    BITNET_TEMPLATE_ABSENT = 0,  /* the file has none: vocabulary and architecture chose */
    BITNET_TEMPLATE_GUESSED = 1, /* it cannot be rendered (bitnet_chat_features has the reason); the
                                    form resembles it, and what it writes may differ */
    BITNET_TEMPLATE_EXACT = 2,   /* the form writes what the file's template would, or is it */
} bitnet_template_match;

typedef struct bitnet_model_info {
    size_t struct_size;
    const char *path;         /* as given to _open; "<memory>" for _open_memory */
    const char *name;         /* general.name, or "" */
    const char *architecture; /* general.architecture */
    const char *activation;   /* "relu2" or "silu" */
    const char *weight_type;  /* type of the projections, "mixed" if they differ: "I2_S" */
    const char *embedding_type;
    const char *head_type;
    const char *tokenizer;     /* "bpe/llama-3", "bpe/gpt-2", "spm" */
    const char *chat_template; /* what renders conversations: "file" (the file's own template), a
                                  built-in form that writes the same ("bitnet", ...), or "" */
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab, n_ctx_train;
    bool tied_head;
    int32_t bos_id, eos_id; /* -1: none */
    uint64_t n_params;      /* weights, all tensors */
    uint64_t n_file_bytes;
    double bits_per_weight;               /* of all tensor data */
    bitnet_template_match template_match; /* of chat_template; a guess is worth a warning */
} bitnet_model_info;

typedef struct bitnet_engine bitnet_engine;

BITNET_API void bitnet_engine_options_init(bitnet_engine_options *options);

/* Maps a GGUF file and prepares its weights. Fails: IO (cannot open, read), MODEL (malformed or not
 * a model we run), TOKENIZER, MEMORY; SUSPICIOUS on a strict runtime (values that are not finite,
 * tensors all zero, scales <= 0, invalid codes) or by policy_path; CANCELLED. The file must not
 * change while the engine is open. */
BITNET_API bitnet_status bitnet_engine_open(bitnet_runtime *runtime, const char *path,
                                            const bitnet_engine_options *options,
                                            bitnet_engine **out, bitnet_error *err);
/* The same from bytes the caller keeps alive and unchanged until _close. `data` 64-byte aligned is
 * best, any alignment works. */
BITNET_API bitnet_status bitnet_engine_open_memory(bitnet_runtime *runtime, const void *data,
                                                   size_t n_bytes,
                                                   const bitnet_engine_options *options,
                                                   bitnet_engine **out, bitnet_error *err);
BITNET_API void bitnet_engine_close(bitnet_engine *engine);
BITNET_API const bitnet_model_info *bitnet_engine_model(const bitnet_engine *engine);
/* For one thread that computes and does little else. Where the CPU computes with pinned threads,
 * pins the calling thread to the CPU they leave for it, so that the system puts it on none of
 * theirs. Threads that it starts from then on inherit that. False: nothing was done. */
BITNET_API bool bitnet_engine_pin_caller(const bitnet_engine *engine);
/* The file of the engine, model or packed weights, whose map holds the address, as a path that
 * lives as long as the engine; NULL: none does. The library installs no signal handler. A file that
 * is truncated, or on a disk that fails, while it is mapped raises SIGBUS in whatever thread reads
 * it; a program's own handler asks with si_addr whether that was one of ours, and cannot return to
 * the read: it ends the process, or leaves by siglongjmp and uses the engine no more.
 * Async-signal-safe: it takes no lock and writes nothing; from any thread, between the return of
 * _open and _close. While _open runs, the file it was given is the one. */
BITNET_API const char *bitnet_engine_map(const bitnet_engine *engine, const void *address);

/* Runs one real step on a session of its own, a prompt and a token with their logits, so that the
 * first one that somebody waits for finds kernels, weights and workspaces in place. It counts in
 * statistics and kernels like any other. *ms (may be NULL): how long it took. Fails as opening a
 * session and appending to it do; ARGUMENT for NULL and for an engine without weights. */
BITNET_API bitnet_status bitnet_engine_warmup(bitnet_engine *engine, double *ms, bitnet_error *err);

/* One kernel that the dispatcher called, and how often since the engine was opened. */
typedef struct bitnet_kernel_use {
    const char *id; /* "linear_i2s.dotprod" */
    uint64_t n_calls;
} bitnet_kernel_use;

/* Writes up to `cap` kernels with n_calls > 0 into `out`; returns how many there are. */
BITNET_API size_t bitnet_engine_kernels(const bitnet_engine *engine, bitnet_kernel_use *out,
                                        size_t cap);

/* A file in a folder for cache_dir; texts live as long as the call. */
typedef struct bitnet_cache_file {
    const char *name;   /* below the folder */
    const char *kind;   /* "packed weights", "checksum", "kernels", "unfinished" */
    const char *source; /* the model file it was made of, as it was named then; "": not known */
    uint64_t n_bytes;
    int64_t used; /* seconds since 1970 */
} bitnet_cache_file;
typedef void (*bitnet_cache_fn)(void *user, const bitnet_cache_file *file);

/* Tells of each of our files there, the longest unused first; a folder that is missing has none.
 * Any thread. Fails: ARGUMENT, IO, MEMORY. */
BITNET_API bitnet_status bitnet_cache_list(const char *cache_dir, bitnet_cache_fn each, void *user,
                                           bitnet_error *err);
/* Removes them, and tells `each` (may be NULL) of every one that is gone. Files that are being
 * written stay, and so do the folder and all that is not ours; an engine that uses one goes on.
 * Fails: as _list; IO if a file could not be removed. */
BITNET_API bitnet_status bitnet_cache_clear(const char *cache_dir, bitnet_cache_fn each, void *user,
                                            bitnet_error *err);

/* ---- statistics: exact counts since the engine was opened or _reset was called ---- */

typedef struct bitnet_performance_stats {
    uint64_t n_launches;                         /* kernel calls */
    double exec_ms;                              /* in operations, all sessions together */
    uint64_t n_h2d, n_d2h, h2d_bytes, d2h_bytes; /* transfers to and from the device; CPU: 0 */
    uint64_t cache_hits, cache_misses;           /* of the device's memory pool; CPU: 0 */
} bitnet_performance_stats;

typedef struct bitnet_precision_stats {
    uint64_t n_ops; /* operations timed */
    double fp16_ms, bf16_ms, fp32_ms;
    uint64_t memory_allocated, memory_peak; /* on the device; CPU: 0 */
    uint64_t n_h2d, n_d2h, h2d_bytes, d2h_bytes;
} bitnet_precision_stats;

typedef struct bitnet_device_stats {
    uint64_t memory_used,
        memory_total;              /* CPU: resident bytes of the process, memory of the system */
    double gpu_efficiency;         /* kernel calls on a GPU / all; 0 without any */
    uint64_t fallback_count;       /* steps that failed and were repeated on the CPU */
    uint64_t dequantised_calls;    /* calls that a dequantised fallback served */
    uint64_t n_quantize, n_matmul; /* operations timed */
    double avg_quantize_ms, avg_matmul_ms; /* of one operation, with the norm, gate or sum before it
                                              where that is the same call; 0 without any */
    uint64_t n_replays; /* passes that a GPU repeated from a recording; their kernels are counted */
    uint64_t n_unrecorded; /* passes that would have been, but recording failed: launched instead */
} bitnet_device_stats;

typedef struct bitnet_stats {
    size_t struct_size;
    bool timed; /* the runtime's option `statistics`: without it all times are 0 */
    const char *device, *provider; /* "cpu", "dotprod"; live as long as the runtime */
    bitnet_performance_stats performance;
    bitnet_precision_stats precision;
    bitnet_device_stats on_device;
    const char *ran_in; /* the precision float matrices were multiplied in: "fp32" */
} bitnet_stats;

BITNET_API void bitnet_stats_init(bitnet_stats *stats);
/* Any thread. Fails: ARGUMENT (NULL, struct_size), MEMORY. */
BITNET_API bitnet_status bitnet_engine_stats(const bitnet_engine *engine, bitnet_stats *stats,
                                             bitnet_error *err);
BITNET_API void bitnet_engine_stats_reset(bitnet_engine *engine);
/* One line for people into buf, cut at cap; returns the length of the whole line. */
BITNET_API size_t bitnet_stats_summary(const bitnet_stats *stats, char *buf, size_t cap);
/* More than 80 % of the kernel calls ran on a GPU. */
BITNET_API bool bitnet_stats_gpu_effective(const bitnet_stats *stats);

/* ---- text ---------------------------------------------------------------------------------- */

enum {
    /* put BOS first if the model wants one and the text has none */
    BITNET_TEXT_BOS = 1,
    /* tokenize: "<|eot_id|>" in the text is that token; without it, plain text.
     * detokenize: print special tokens as their text; without it, nothing */
    BITNET_TEXT_SPECIAL = 2,
};

/* Text to ids. Any bytes are legal, UTF-8 or not. *n_ids is always set to the number of ids the
 * text has; at most `cap` are written. Fails: ARGUMENT if cap is too small (call again), MEMORY,
 * CANCELLED by the engine's `cancel` (*n_ids is 0). */
BITNET_API bitnet_status bitnet_tokenize(const bitnet_engine *engine, const char *text,
                                         size_t n_bytes, unsigned flags, int32_t *ids, size_t cap,
                                         size_t *n_ids, bitnet_error *err);
/* Ids to bytes, the inverse. *n_bytes is always set; at most `cap` are written, no NUL added.
 * Fails: ARGUMENT (cap too small, or an id outside the vocabulary), MEMORY. */
BITNET_API bitnet_status bitnet_detokenize(const bitnet_engine *engine, const int32_t *ids,
                                           size_t n_ids, unsigned flags, char *bytes, size_t cap,
                                           size_t *n_bytes, bitnet_error *err);
/* The bytes of one token as they appear inside a text (special tokens: their name). May be part of
 * a UTF-8 character. NULL for an id outside the vocabulary. */
BITNET_API const char *bitnet_token_bytes(const bitnet_engine *engine, int32_t id, size_t *n_bytes);
BITNET_API bool bitnet_token_special(const bitnet_engine *engine, int32_t id);
/* True if the model ends a reply with this token (EOS, <|eot_id|>, ...). */
BITNET_API bool bitnet_token_stops(const bitnet_engine *engine, int32_t id);

typedef struct bitnet_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text;
} bitnet_message;

/* Renders a conversation as the model was trained to see it, ending where the assistant speaks next
 * if `reply` is true. `template_name` NULL: the one of the file (chat_template of
 * bitnet_model_info); else "bitnet", "bitnet-space", "llama3", "chatml", "falcon3", "instruct",
 * "raw", or "file" for the file's own, a Jinja program (bitnet_template_list). *n_bytes is always
 * set; at most `cap` bytes are written, no NUL. Tokenize the result with BITNET_TEXT_BOS |
 * BITNET_TEXT_SPECIAL; a BOS that the template has written is not doubled.
 *
 * A message cannot forge a turn. In its text a space is put behind the first character of every
 * control token and stop token, of user-defined tokens that the template writes, and of marks
 * ("<tool_call>", "[INST]") that stand in the template; so where several texts, or a text and the
 * template, make one together. Words without brackets ("### User:") a message may imitate, and a
 * word that the template itself puts between brackets is the template's. In what the assistant
 * said, <think> and </think> stay where the file's template knows them.
 *
 * Fails: ARGUMENT (unknown template or role; the file's template refuses the conversation, in its
 * own words; a vocabulary whose tokens no space can break; cap too small), TOKENIZER (the file has
 * no template that is known, or its own one fails or reaches a bound), MEMORY. */
BITNET_API bitnet_status bitnet_chat_render(const bitnet_engine *engine, const char *template_name,
                                            const bitnet_message *messages, size_t n_messages,
                                            bool reply, char *bytes, size_t cap, size_t *n_bytes,
                                            bitnet_error *err);
/* The same for a conversation as servers receive it. `request` is a JSON object with these fields:
 *   messages               list of objects: role (system, developer, user, assistant, tool),
 *                          content (a string, or a list of {"type": "text", "text": ...}, which
 *                          are joined by line breaks; parts of another type are refused), and what
 *                          else the template knows: tool_calls, tool_call_id, name,
 *                          reasoning_content
 *   tools, documents       lists for the template. Default: none
 *   add_generation_prompt  does the assistant speak next? Default: true
 *   chat_template_kwargs   more variables of the template, such as enable_thinking
 *
 * The file's own template gets all of it, with bos_token, eos_token and strftime_now, as
 * transformers gives it. Arguments of a call become what the template expects, an object or its
 * text; beside calls an empty content is null where it shows calls only then; a developer is a
 * system where the template knows none; members that are null are left out. Texts and keys of the
 * request are guarded as above, names and tools too. The built-in forms have messages of system,
 * user and assistant only, and refuse the rest by name.
 *
 * Fails as bitnet_chat_render does; ARGUMENT too for a request that is not of this form (the
 * message names the place), and for tools that the template does not show to the model. */
BITNET_API bitnet_status bitnet_chat_render_json(const bitnet_engine *engine,
                                                 const char *template_name, const char *request,
                                                 size_t n_request, char *bytes, size_t cap,
                                                 size_t *n_bytes, bitnet_error *err);

/* How a model calls tools, by what its template writes of earlier calls. */
typedef enum bitnet_tool_style {
    BITNET_TOOLS_NONE = 0,    /* the template shows no tools to the model */
    BITNET_TOOLS_HERMES = 1,  /* <tool_call>{"name": ..., "arguments": {...}}</tool_call> */
    BITNET_TOOLS_XML = 2,     /* <tool_call><function=NAME><parameter=KEY>...</parameter>... */
    BITNET_TOOLS_LLAMA3 = 3,  /* {"name": ..., "parameters": {...}}, and nothing else */
    BITNET_TOOLS_MISTRAL = 4, /* [TOOL_CALLS][{"name": ..., "arguments": {...}}] */
    BITNET_TOOLS_OTHER = 5,   /* in none of these forms */
} bitnet_tool_style;

/* What a chat template offers. */
typedef struct bitnet_chat_features {
    size_t struct_size;
    const char *name; /* of the template: "file", "bitnet", ...; "": none is known */
    bool tools;       /* it shows tools to the model */
    bool thinking;    /* it knows <think>, or the variable enable_thinking */
    bitnet_tool_style tool_style;
    const char *source; /* tokenizer.chat_template of the file, no NUL behind it; "": it has none */
    size_t n_source;
    const char *problem; /* why "file" cannot be rendered, with its line; "": it can, or there is
                            none */
} bitnet_chat_features;

BITNET_API void bitnet_chat_features_init(bitnet_chat_features *features);
/* Of the template of this name; NULL: the one of the file. Fails: ARGUMENT (NULL, struct_size,
 * unknown name). */
BITNET_API bitnet_status bitnet_chat_features_get(const bitnet_engine *engine,
                                                  const char *template_name,
                                                  bitnet_chat_features *features,
                                                  bitnet_error *err);
/* Renders a chat template in Jinja, such as a file's tokenizer.chat_template, as transformers does:
 * `values`, a JSON object, holds its variables (messages, tools, add_generation_prompt,
 * bos_token...). Texts in them are written as they are: special tokens that a user wrote stay
 * special tokens. A template's steps, memory and text are bounded. *n_bytes is set to the length of
 * the text (0 on other failures than a short buffer); at most `cap` bytes are written, no NUL
 * added. For conversations call bitnet_chat_render, which guards them. Fails: ARGUMENT (the
 * template refuses the values by raise_exception, values are no JSON object, cap too small),
 * TOKENIZER (the template is no Jinja, or uses or does what is not supported; the message has its
 * line), MEMORY. */
BITNET_API bitnet_status bitnet_template_render(const char *source, size_t n_source,
                                                const char *values, size_t n_values, char *bytes,
                                                size_t cap, size_t *n_bytes, bitnet_error *err);
/* Name of the i-th template that bitnet_chat_render knows, or NULL past the end. */
BITNET_API const char *bitnet_template_list(int i);

/* A text as it comes, token by token. Memory is bounded and taken at open. One thread at a time. */
typedef struct bitnet_stream bitnet_stream;

typedef struct bitnet_stream_options {
    size_t struct_size;
    const char *const *stops; /* stop strings, NUL-terminated UTF-8, at most BITNET_STOP_MAX bytes
                                 each; copied */
    size_t n_stops;
    bool print_special; /* special tokens give their text. Default: nothing */
    bool continues;     /* the text continues another. Default: it begins one, and the space that
                           some tokenizers put there is left out */
} bitnet_stream_options;

#define BITNET_STOP_MAX 256

BITNET_API void bitnet_stream_options_init(bitnet_stream_options *options);
/* Close it before its engine. Fails: ARGUMENT naming the field, MEMORY. */
BITNET_API bitnet_status bitnet_stream_open(const bitnet_engine *engine,
                                            const bitnet_stream_options *options,
                                            bitnet_stream **out, bitnet_error *err);
BITNET_API void bitnet_stream_close(bitnet_stream *stream);
/* The text that the next token allows to be shown, until the next call: whole UTF-8 characters
 * (bytes that cannot become one come as they are), possibly none. What may become a stop string is
 * held back; a stop string and what follows it never come: then *stopped (may be NULL) is true, and
 * pushing gives nothing more. Fails: ARGUMENT (an id outside the vocabulary). Allocates nothing. */
BITNET_API bitnet_status bitnet_stream_push(bitnet_stream *stream, int32_t id, const char **text,
                                            size_t *n_bytes, bool *stopped, bitnet_error *err);
/* What is still held back, once no token follows, or one with which another text begins. */
BITNET_API bitnet_status bitnet_stream_finish(bitnet_stream *stream, const char **text,
                                              size_t *n_bytes, bitnet_error *err);
/* Begins another text with the same options. */
BITNET_API void bitnet_stream_reset(bitnet_stream *stream);

/* ---- session ------------------------------------------------------------------------------- */

typedef enum bitnet_kv_type {
    BITNET_KV_F16 = 0,
    BITNET_KV_F32 = 1,
    BITNET_KV_INT8 = 2
} bitnet_kv_type;

/* A cache that several sessions of an engine share (bitnet_kv_pool_open, below). */
typedef struct bitnet_kv_pool bitnet_kv_pool;

typedef struct bitnet_session_options {
    size_t struct_size;
    int n_ctx;   /* 0: the context the model was trained with, at most 4096 */
    int n_batch; /* prompt tokens per pass; default 512. Changes speed and memory; no bit of
                    the result on the CPU, on a GPU the last bits of logits */
    bitnet_kv_type kv_type;  /* default F16 */
    bitnet_kv_pool *kv_pool; /* NULL: a cache of its own for the whole context. Else blocks are
                                taken from this pool of the same engine, whose kv_type counts; n_ctx
                                0 is then at most its max_sequence */
} bitnet_session_options;

typedef struct bitnet_session bitnet_session;

/* Logits after the index-th appended token, [n_vocab], valid during the call. False: cancel. */
typedef bool (*bitnet_logits_fn)(void *user, size_t index, const float *logits);

BITNET_API void bitnet_session_options_init(bitnet_session_options *options);
/* The memory a session takes, in bytes. */
typedef struct bitnet_session_cost {
    uint64_t session_bytes;   /* of the session alone: tokens, two hidden states, text */
    uint64_t cache_bytes;     /* its blocks of keys and values; 0 in a kv_pool */
    uint64_t workspace_bytes; /* of what passes of n_batch tokens need. The engine has one for all
                                 its sessions, lent to whichever computes, and one more for every
                                 further thread that computes at the same time */
} bitnet_session_cost;
/* What a session with these options will cost, before it is opened. */
BITNET_API bitnet_status bitnet_session_memory(const bitnet_engine *engine,
                                               const bitnet_session_options *options,
                                               bitnet_session_cost *cost, bitnet_error *err);
/* Fails: ARGUMENT naming the field; MEMORY, before anything is allocated, if what it will cost is
 * more than what is free: of the device, or on the host of the machine, of every control group
 * around the process and of its limits, less what other sessions and pools of the runtime have
 * reserved and not yet used. The message has all of these. */
BITNET_API bitnet_status bitnet_session_open(bitnet_engine *engine,
                                             const bitnet_session_options *options,
                                             bitnet_session **out, bitnet_error *err);
BITNET_API void bitnet_session_close(bitnet_session *session);

/* Who may end what follows: `cancel` is asked between passes, on the CPU between layers of those of
 * several tokens, and while the session waits for cache blocks or a workspace. A pass that is ended
 * leaves nothing behind. A pass of several sessions (bitnet_batch_step) is ended if all of them say
 * so. NULL: whom the engine asks. */
BITNET_API void bitnet_session_on_cancel(bitnet_session *session, bitnet_cancel_fn cancel,
                                         void *user);

/* Asks to be told of every prompt that follows (an append, sync or generate of several tokens, a
 * score) how many of its tokens are computed: after every pass, on the CPU after every layer of it.
 * If a pass is cancelled, its results are discarded. NULL: no longer. */
BITNET_API void bitnet_session_on_progress(bitnet_session *session, bitnet_progress_fn progress,
                                           void *user);

/* Appends tokens to the timeline. `each` NULL: only the last position's logits are computed (see
 * _logits); else it is called once per token. Fails: CONTEXT (would not fit: nothing was appended),
 * ARGUMENT (an id outside the vocabulary), CANCELLED (position says how far it came). */
BITNET_API bitnet_status bitnet_session_append(bitnet_session *session, const int32_t *ids,
                                               size_t n_ids, bitnet_logits_fn each, void *user,
                                               bitnet_error *err);
/* Makes the timeline equal to ids[0..n_ids), reusing the longest common prefix already computed;
 * *n_reused (may be NULL) says how long that was. At least the last token is always computed. */
BITNET_API bitnet_status bitnet_session_sync(bitnet_session *session, const int32_t *ids,
                                             size_t n_ids, size_t *n_reused, bitnet_error *err);
/* Forgets everything from `position` on. Fails: ARGUMENT if position > _position. */
BITNET_API bitnet_status bitnet_session_rewind(bitnet_session *session, size_t position,
                                               bitnet_error *err);
BITNET_API size_t bitnet_session_position(const bitnet_session *session);
/* How many of these tokens have their keys and values in the cache: all, or fewer where others of
 * its kv_pool took blocks. The rest is computed again when the session is next used. */
BITNET_API size_t bitnet_session_cached(const bitnet_session *session);
BITNET_API size_t bitnet_session_context(const bitnet_session *session);
/* The tokens of the timeline, [_position]; valid until the session is next changed. */
BITNET_API const int32_t *bitnet_session_tokens(const bitnet_session *session);
/* Opens a session whose timeline is the first `position` tokens of another one, with the same
 * options. In a kv_pool both share the cache blocks of these tokens and nothing is copied;
 * whichever of them first writes into a block that is not full takes a copy of that block. With a
 * cache of its own the fork copies it. The fork has no logits, callbacks or progress of the other
 * session, which does not change and may be closed first: several threads may fork one session at a
 * time, while none uses it otherwise. Fails: ARGUMENT (position > _position), MEMORY, what the
 * device fails with. */
BITNET_API bitnet_status bitnet_session_fork(const bitnet_session *session, size_t position,
                                             bitnet_session **out, bitnet_error *err);
/* Logits of the last appended position, [n_vocab], valid until the session changes. They are
 * computed, and room for them is taken, when they are first asked for. NULL: there are none, they
 * could not be computed (a log line says why: ask again), or a callback asks during a pass. */
BITNET_API const float *bitnet_session_logits(const bitnet_session *session);
/* Writes / reads the timeline (tokens and cache) to a file, by temp file and rename. A file loads
 * only into a session of the same model and kv_type, on any device, in a pool or not. Nothing of a
 * file that is refused reaches the session; if the device fails, its timeline is as before. Bytes
 * of the cache that no token of the timeline has written are saved as 0. Fails: IO, CONTEXT (longer
 * than the session's context or its pool), MODEL (not ours, cut, damaged, other model). */
BITNET_API bitnet_status bitnet_session_save(const bitnet_session *session, const char *path,
                                             bitnet_error *err);
BITNET_API bitnet_status bitnet_session_load(bitnet_session *session, const char *path,
                                             bitnet_error *err);
/* The same bytes through a function, in order, which cancels by returning false and must not use
 * sessions of the same pool; and the same from memory. */
typedef bool (*bitnet_bytes_fn)(void *user, const void *bytes, size_t n_bytes);
BITNET_API bitnet_status bitnet_session_save_to(const bitnet_session *session,
                                                bitnet_bytes_fn write, void *user,
                                                bitnet_error *err);
BITNET_API bitnet_status bitnet_session_load_memory(bitnet_session *session, const void *bytes,
                                                    size_t n_bytes, bitnet_error *err);

/* One kernel that computed tokens of a session, and how often it was called for them. */
typedef struct bitnet_session_kernel {
    const char *id;    /* "linear_i2s.dotprod"; "others" beyond 95 different ones */
    uint64_t n_calls;  /* in all passes that had tokens of this session */
    uint64_t n_shared; /* of these, in passes that served other sessions too, or while another
                          thread computed with the same engine */
} bitnet_session_kernel;

/* Writes up to `cap` kernels into `out`; returns how many there are. */
BITNET_API size_t bitnet_session_kernels(const bitnet_session *session, bitnet_session_kernel *out,
                                         size_t cap);

/* ---- a cache shared by sessions -------------------------------------------------------------- */

/* Whose blocks go first when a session needs more than are free. */
typedef enum bitnet_kv_policy {
    BITNET_KV_LRU = 0,  /* the session used least recently */
    BITNET_KV_FIFO = 1, /* the session that came into the pool first */
    BITNET_KV_LFU = 2,  /* the session used least often; of several, least recently */
} bitnet_kv_policy;

typedef struct bitnet_kv_pool_options {
    size_t struct_size;
    uint64_t max_bytes;      /* of keys and values, allocated at once. Default 1 GiB */
    int max_sequence;        /* longest context a session may ask for. Default 2048 */
    int block_size;          /* positions per block: 64 */
    bitnet_kv_policy policy; /* default LRU */
    bool whole_sequences;    /* a victim loses all its blocks; default false: as many as are needed,
                                from its end, so that less must be computed again */
    bool compression;        /* INT8 whatever kv_type says. Default false */
    bitnet_kv_type kv_type;  /* default F16 */
} bitnet_kv_pool_options;

typedef struct bitnet_kv_pool_stats {
    uint64_t block_bytes; /* of one block, all layers */
    /* blocks: all; those that sessions have; those that only the prefix cache keeps; the rest */
    size_t n_blocks, n_used, n_cached, n_free;
    size_t n_shared; /* of n_used, those that several sessions have */
    size_t n_sessions;
    uint64_t n_evictions, n_blocks_evicted;   /* sessions that lost blocks, and how many blocks */
    uint64_t n_hits;                          /* uses of a session that found its cache whole */
    uint64_t n_rebuilds, n_tokens_rebuilt;    /* uses that had to compute tokens again */
    uint64_t n_prefix_lookups, n_prefix_hits; /* of bitnet_session_reuse; those that found blocks */
    uint64_t n_prefix_tokens;                 /* that need not be computed because of these */
    uint64_t n_cached_evicted;                /* blocks that the prefix cache gave up */
} bitnet_kv_pool_stats;

BITNET_API void bitnet_kv_pool_options_init(bitnet_kv_pool_options *options);
/* When blocks run out, other sessions of the pool that are not computing lose theirs; such a
 * session keeps its tokens and computes the cache again when it is next used: slower, the same bits
 * on the CPU; on a GPU those of a prompt of these tokens, even if they came one by one, unless
 * batch_invariant is set. Callers in other threads wait for their turn, or until they are
 * cancelled; a cancel callback must not use sessions of the same pool. A timeline longer than the
 * whole pool is refused with CONTEXT. Close it after its sessions, before its engine. Fails:
 * ARGUMENT, MEMORY. */
BITNET_API bitnet_status bitnet_kv_pool_open(bitnet_engine *engine,
                                             const bitnet_kv_pool_options *options,
                                             bitnet_kv_pool **out, bitnet_error *err);
BITNET_API void bitnet_kv_pool_close(bitnet_kv_pool *pool);
/* Any thread. */
BITNET_API void bitnet_kv_pool_read(bitnet_kv_pool *pool, bitnet_kv_pool_stats *out);

/* The prefix cache of a pool: texts that were computed once and whose blocks others begin with.
 * Tokens are compared, and found only in the scope in which they were published (a number that the
 * caller chooses, for instance one per user): a request can neither get nor notice what another
 * scope has. Cached blocks that no session has are given up before sessions lose theirs, in the
 * order of the pool's policy, the end of a text before its beginning. Sessions of any threads.
 *
 * _publish makes the full blocks of the timeline known; they stay cached when the session is
 * closed. Blocks that have the same tokens already stay in their place. _publish_all does so with
 * the last block, too, if it has 8 tokens or more: for a session about to be closed, since one that
 * goes on takes a copy of that block. Fails: MEMORY.
 *
 * _reuse makes the timeline the longest prefix of ids for which nothing need be computed, at most
 * n_ids - 1 tokens: what it has in common with ids already, or with published texts, if that is
 * more. Whole blocks of these are always found; behind them, 8 tokens or more of one more block, if
 * it is among the 64 used last that continue the same text. *n_reused (may be NULL): its position
 * then. Append the other ids, or _sync to all. Logits are those of a session that computed
 * everything itself, bit for bit; on a GPU, those of one that divided the prompt into the same
 * passes. Fails: ARGUMENT.
 *
 * Sessions with a cache of their own publish nothing and reuse what they have. */
BITNET_API bitnet_status bitnet_session_publish(bitnet_session *session, uint64_t scope,
                                                bitnet_error *err);
BITNET_API bitnet_status bitnet_session_publish_all(bitnet_session *session, uint64_t scope,
                                                    bitnet_error *err);
BITNET_API bitnet_status bitnet_session_reuse(bitnet_session *session, uint64_t scope,
                                              const int32_t *ids, size_t n_ids, size_t *n_reused,
                                              bitnet_error *err);

/* ---- sampler ------------------------------------------------------------------------------- */

/* Applied in this order: constraints, penalties, then temperature, top-k, typical, top-p, min-p;
 * then one draw.
 */
typedef struct bitnet_sampler_options {
    size_t struct_size;
    float temperature;        /* 0: greedy (ties to the lowest id). Default 0.7 */
    int top_k;                /* 0: off. Default 50 */
    float top_p;              /* 1: off. Default 0.95 */
    float min_p;              /* 0: off. Default 0 */
    float typical_p;          /* 1: off. Default 1 */
    float repetition_penalty; /* 1: off. Default 1 */
    float presence_penalty;   /* 0: off. Default 0 */
    float frequency_penalty;  /* 0: off. Default 0 */
    int penalty_window;       /* last tokens the penalties look at; 0: all. Default 64 */
    uint64_t seed;            /* the same seed gives the same choices on every machine. Default 0 */
    /* presence_penalty and frequency_penalty count all tokens of the history but the first so many,
     * whatever the window: those of an answer, say, without its prompt. 0: the window. Default 0 */
    size_t penalty_from;
} bitnet_sampler_options;

typedef struct bitnet_sampler bitnet_sampler;

BITNET_API void bitnet_sampler_options_init(bitnet_sampler_options *options);
/* Takes about 6 KB and one bit per token of the vocabulary. Fails: ARGUMENT naming the field (NaN,
 * out of range), MEMORY. */
BITNET_API bitnet_status bitnet_sampler_open(const bitnet_sampler_options *options, int n_vocab,
                                             bitnet_sampler **out, bitnet_error *err);
BITNET_API void bitnet_sampler_close(bitnet_sampler *sampler);
/* Chooses a token from logits [n_vocab], given the timeline before it (for the penalties; may be
 * NULL, 0). Fails: ERROR if no logit that may be chosen is finite, MEMORY. Allocates nothing but
 * room for candidates, where they are more than in any choice before and more than 1024 (without
 * top_k, with a temperature), and for penalties that look at more than 1024 tokens. */
BITNET_API bitnet_status bitnet_sampler_pick(bitnet_sampler *sampler, const float *logits,
                                             const int32_t *history, size_t n_history, int32_t *id,
                                             bitnet_error *err);

typedef struct bitnet_bias {
    int32_t id;
    float bias; /* finite, or -INFINITY: the id is not chosen */
} bitnet_bias;

/* What choices are restricted to, before everything else: an id that is not allowed is not chosen,
 * biases are added to logits, then penalties and the rest apply. */
typedef struct bitnet_constraints {
    size_t struct_size;
    /* (n_vocab + 31) / 32 words: bit id % 32 of allowed[id / 32] allows the id. One at least must
     * be allowed. NULL: every id is */
    const uint32_t *allowed;
    const bitnet_bias *biases; /* each id once, in any order */
    size_t n_biases;
} bitnet_constraints;

BITNET_API void bitnet_constraints_init(bitnet_constraints *constraints);
/* Restricts the choices that this sampler makes from now on, in whatever function and on whatever
 * device, until it is called again; NULL: no longer. Both arrays are copied. Not while a function
 * works with the sampler, except from the on_text of bitnet_generate. Fails: ARGUMENT naming the
 * field, MEMORY; then the constraints are as before. */
BITNET_API bitnet_status bitnet_sampler_constrain(bitnet_sampler *sampler,
                                                  const bitnet_constraints *constraints,
                                                  bitnet_error *err);

/* Where a sampler stands in its stream of choices. Plain data without pointers: it may be copied,
 * stored, and restored on another machine. */
typedef struct bitnet_sampler_state {
    uint64_t seed, n_draws;
} bitnet_sampler_state;

/* _restore puts a sampler, this one or another, where _save found one: with equal options it then
 * makes the same choices again. Constraints and options other than the seed are not part of it. */
BITNET_API void bitnet_sampler_save(const bitnet_sampler *sampler, bitnet_sampler_state *state);
BITNET_API void bitnet_sampler_restore(bitnet_sampler *sampler, const bitnet_sampler_state *state);

/* ---- grammar: texts of a form ---------------------------------------------------------------- */

typedef enum bitnet_grammar_kind {
    /* Rules in GBNF: `root ::= "yes" | "no" [.!]{0,3}   # comment`. Literals and classes of
     * characters with ranges and ^, escapes (\n \r \t \xNN \uNNNN \UNNNNNNNN, or the character
     * itself behind a backslash where it would mean something), any character (.), groups, |, the
     * repetitions * + ? {n} {n,} {n,m}, names of other rules. A text begins with the rule root. */
    BITNET_GRAMMAR_GBNF = 0,
    /* A JSON schema (object, true). Enforced: type (also a list), properties, required,
     * additionalProperties, items, prefixItems, minItems, maxItems, enum, const, anyOf, oneOf
     * where no value can be in two of its schemas (by their types, constants, bounds, or a required
     * property), allOf where its parts can be put together, $ref within the schema
     * (recursive too; at most 4096 bytes), minLength, maxLength, pattern (regular expressions
     * without look-around and references), the formats date, time, date-time, duration, uuid,
     * email, hostname, ipv4, ipv6 and uri (of http and https) of strings, of integers int8, int16,
     * int32, int64, uint8, uint16, uint32, uint64 (int and uint: 32 bits), minimum, maximum and
     * their exclusive forms (of integers exact, within 64 bits; of numbers whole, up to 10^9),
     * multipleOf where it is 1. Beside pattern, format is an annotation; beside a format, bounds on
     * the length may be those that all it writes keeps to. Annotations (title and so on, names that
     * begin with x-, the formats float and double, $id of the whole, propertyNames that lets all
     * names through) say nothing. Every other keyword, and combinations that are not enforced, are
     * refused by name and place. Texts may be fewer than the schema allows, never others:
     * properties come in its order, and there are others than those it names only with
     * additionalProperties */
    BITNET_GRAMMAR_JSON_SCHEMA = 1,
    /* Any JSON object; the text of the grammar is not looked at */
    BITNET_GRAMMAR_JSON_OBJECT = 2,
} bitnet_grammar_kind;

/* What a text must look like, compiled for the vocabulary of an engine. Any number of matchers and
 * threads may share one. */
typedef struct bitnet_grammar bitnet_grammar;
/* Where one text stands in its grammar. One thread at a time. */
typedef struct bitnet_matcher bitnet_matcher;

/* Close it before its engine. What is written as JSON has bounded white space (after brackets and
 * commas nothing, a blank, or a line's end and at most 32 blanks) and bounded numbers (18 digits,
 * 20 behind the point, 2 of an exponent), and nothing behind its end. Texts of at most 1 MiB,
 * 65,536 rules, 262,144 instructions. Fails: ARGUMENT (what the text has that is not understood or
 * cannot be followed, such as a rule that begins with itself or never ends), MEMORY. */
BITNET_API bitnet_status bitnet_grammar_open(bitnet_engine *engine, bitnet_grammar_kind kind,
                                             const char *text, size_t n_bytes, bitnet_grammar **out,
                                             bitnet_error *err);
/* Matchers that are open go on; close them before the engine too. */
BITNET_API void bitnet_grammar_close(bitnet_grammar *grammar);

/* At the beginning of a text. `continues`: the text is not the first behind a special token (BOS, a
 * turn mark, as most prompts of chats end), so that a space in front of it counts, as for
 * bitnet_stream_options; it makes a difference for tokenizers that put one there. Fails: ARGUMENT,
 * MEMORY. */
BITNET_API bitnet_status bitnet_matcher_open(bitnet_grammar *grammar, bool continues,
                                             bitnet_matcher **out, bitnet_error *err);
BITNET_API bitnet_status bitnet_matcher_fork(const bitnet_matcher *matcher, bitnet_matcher **out,
                                             bitnet_error *err);
BITNET_API void bitnet_matcher_close(bitnet_matcher *matcher);
/* The ids that may follow, as bitnet_constraints has them; n_words is (n_vocab + 31) / 32. Tokens
 * that the model ends with are among them exactly where the text may end; other special and unused
 * ones never are. Masks are remembered, for all matchers of the grammar. Fails: ERROR if no id may
 * follow (the vocabulary lacks the characters), ARGUMENT (NULL; n_words; the text has ended; it can
 * be read in more ways at a time than are followed), MEMORY. */
BITNET_API bitnet_status bitnet_matcher_mask(bitnet_matcher *matcher, uint32_t *allowed,
                                             size_t n_words, bitnet_error *err);
/* The text goes on with this token. Fails: ARGUMENT if it may not follow, or as _mask; then the
 * matcher is where it was. */
BITNET_API bitnet_status bitnet_matcher_accept(bitnet_matcher *matcher, int32_t id,
                                               bitnet_error *err);
/* The text may end here. One that ends elsewhere, for instance by max_tokens, is a part of a text
 * of the grammar: of a JSON value, for instance, which no parser takes. */
BITNET_API bool bitnet_matcher_done(const bitnet_matcher *matcher);
/* Restricts a sampler (bitnet_sampler_constrain) to what may follow, with these biases (NULL, 0:
 * none). Called before bitnet_generate, and from its on_text after accepting the id, it gives a
 * text of the grammar; let on_text return false where one of the two fails. Fails: as _mask, and
 * ARGUMENT as bitnet_sampler_constrain. */
BITNET_API bitnet_status bitnet_matcher_constrain(bitnet_matcher *matcher, bitnet_sampler *sampler,
                                                  const bitnet_bias *biases, size_t n_biases,
                                                  bitnet_error *err);

/* ---- generate ------------------------------------------------------------------------------ */

typedef enum bitnet_finish {
    BITNET_FINISH_LENGTH = 0,  /* max_tokens */
    BITNET_FINISH_STOP_ID = 1, /* one of stop_ids */
    BITNET_FINISH_EOS = 2,     /* a token the model ends with */
    BITNET_FINISH_STOP_STRING = 3,
    BITNET_FINISH_CONTEXT = 4, /* the context is full, or the whole kv_pool is */
    BITNET_FINISH_CANCELLED = 5,
} bitnet_finish;

/* "length", "stop_id", "eos", "stop_string", "context", "cancelled" */
BITNET_API const char *bitnet_finish_text(bitnet_finish finish);

/* A piece of text, always whole UTF-8 characters (invalid bytes come as they are once they cannot
 * become valid), possibly empty (n_bytes 0) when a token only completes part of one. `id` is the
 * token just chosen. Text that a stop string cut away is never delivered. False: cancel. */
typedef bool (*bitnet_text_fn)(void *user, const char *text, size_t n_bytes, int32_t id);

typedef struct bitnet_generate_options {
    size_t struct_size;
    size_t max_tokens;       /* default 256; SIZE_MAX: until the context is full */
    const int32_t *stop_ids; /* checked first */
    size_t n_stop_ids;
    bool ignore_eos;          /* do not stop at the model's own stop tokens */
    const char *const *stops; /* stop strings, NUL-terminated UTF-8, not part of the text; at most
                                 BITNET_STOP_MAX bytes each */
    size_t n_stops;
    bool print_special;     /* deliver special tokens as their text */
    bitnet_text_fn on_text; /* may be NULL */
    void *user;
    size_t min_tokens; /* stop ids and the model's own stop tokens are not chosen before so many
                          tokens were made; stop strings and max_tokens still end it. Default 0 */
} bitnet_generate_options;

typedef struct bitnet_generate_result {
    bitnet_finish finish;
    size_t n_generated; /* tokens chosen, the stopping one included */
    int32_t last_id;
    double prefill_ms;     /* time of the _sync inside, 0 if there was none to do */
    double first_token_ms; /* from the call to the first chosen token */
    double decode_ms;      /* from the first chosen token to the end */
    size_t n_prefilled;    /* prompt tokens really computed (the rest was reused) */
} bitnet_generate_result;

BITNET_API void bitnet_generate_options_init(bitnet_generate_options *options);
/* Syncs the session to ids, then chooses and appends tokens until a stop. The order of checks after
 * each token: stop ids, EOS, stop strings, max_tokens, context. The stopping token is chosen but
 * not appended. On CANCELLED during decoding the status is OK and finish says so. `result` is
 * filled also on failure with what was done. */
BITNET_API bitnet_status bitnet_generate(bitnet_session *session, bitnet_sampler *sampler,
                                         const int32_t *ids, size_t n_ids,
                                         const bitnet_generate_options *options,
                                         bitnet_generate_result *result, bitnet_error *err);

/* ---- log-probabilities --------------------------------------------------------------------- */

typedef struct bitnet_logprob {
    int32_t id;
    double logprob; /* ln p, in nats; -INFINITY where p is 0 */
} bitnet_logprob;

#define BITNET_LOGPROBS_MAX 1024

/* What the model thinks of the next token, given its logits [n_vocab]: fills chosen[i].logprob for
 * the ids the caller has put there, and top with the n_top <= BITNET_LOGPROBS_MAX most likely ids,
 * best first, equal ones by ascending id; id -1 where there are no more. Penalties, temperature and
 * constraints have no part in it. The bits depend on the logits alone. Fails: ARGUMENT, ERROR (the
 * logits are not finite). Allocates nothing. */
BITNET_API bitnet_status bitnet_logprobs(const float *logits, int n_vocab, bitnet_logprob *chosen,
                                         size_t n_chosen, bitnet_logprob *top, size_t n_top,
                                         bitnet_error *err);

/* ---- batch: many sessions in one step -------------------------------------------------------- */

/* What a scheduler steps its sessions with. Sessions that are not in a step cost nothing. One
 * thread at a time uses a batch and the sessions in it. */
typedef struct bitnet_batch bitnet_batch;

typedef struct bitnet_batch_options {
    size_t struct_size;
    int n_tokens; /* the most tokens of a step, all items together; default 512 */
} bitnet_batch_options;

/* What a step does with one session. Rows below are the ids with every_position, else the last id
 * alone. Arrays are the caller's; NULL or 0: not wanted. */
typedef struct bitnet_batch_item {
    size_t struct_size;
    bitnet_session *session; /* of the batch's engine, once in a step */
    const int32_t *ids;      /* appended to its timeline: part of a prompt, or one token */
    size_t n_ids;            /* 1.. */
    bitnet_sampler *sampler; /* chooses `next` after the last id, within its constraints
                                (bitnet_sampler_constrain). One sampler may serve several items */
    bool every_position;
    bool keep_logits;       /* bitnet_session_logits has the last id's logits afterwards; without
                               it there are none */
    bool want_logprob;      /* of `next` */
    float *logits;          /* [n_rows][n_vocab] */
    bitnet_logprob *chosen; /* [n_rows][n_chosen] ids given by the caller, as bitnet_logprobs */
    size_t n_chosen;
    bitnet_logprob *top; /* [n_rows][n_top] the most likely ids, best first */
    size_t n_top;
    float *hidden; /* [n_rows][n_embd] the last hidden state, normed: what logits follow from */
    /* results */
    bitnet_status status; /* OK: the ids were appended. Else the session and its sampler are as
                             before, and what was asked for is unspecified */
    int32_t next;
    double logprob;
} bitnet_batch_item;

BITNET_API void bitnet_batch_options_init(bitnet_batch_options *options);
BITNET_API void bitnet_batch_item_init(bitnet_batch_item *item);
/* Takes the memory that steps need, unless the engine has it for its sessions already. Close it
 * before the engine. Fails: ARGUMENT, MEMORY. */
BITNET_API bitnet_status bitnet_batch_open(bitnet_engine *engine,
                                           const bitnet_batch_options *options, bitnet_batch **out,
                                           bitnet_error *err);
BITNET_API void bitnet_batch_close(bitnet_batch *batch);
/* n_tokens, or less where the device's memory is planned for less. */
BITNET_API int bitnet_batch_tokens(const bitnet_batch *batch);
/* One step of any mix of prompts and single tokens. On the CPU the results are bit for bit those of
 * every session alone; on a GPU see batch_invariant. Returns OK if every item's status is; else the
 * first failure. Wrong arguments: nothing was done, no status was written. A timeline that is full
 * (CONTEXT), cancelled by its callback (CANCELLED) or without a finite logit to choose from (ERROR)
 * fails alone; others are appended to. A step computes at most n_tokens tokens again whose cache
 * others took (bitnet_session_cached; with batch_invariant also the rest of their pass); a timeline
 * that lost more fails alone with AGAIN, and the next step that has it continues. What the device
 * fails with, where the CPU may not take its place, fails all: no session has changed, and samplers
 * stand where they stood, so that the step may be repeated. */
BITNET_API bitnet_status bitnet_batch_step(bitnet_batch *batch, bitnet_batch_item *items,
                                           size_t n_items, bitnet_error *err);

/* ---- truth --------------------------------------------------------------------------------- */

typedef struct bitnet_score_result {
    size_t n_tokens; /* of the document, BOS included, after cutting */
    size_t n_scored; /* predictions made: n_tokens - 1 */
    double nll;      /* sum of -ln p over them */
} bitnet_score_result;

/* Log-likelihood of ids under the model; rewinds the session to 0 first. Longer than the context:
 * cut there if stride is 0, else windows advancing by `stride` tokens, each token predicted once
 * with as much context as its window has. */
BITNET_API bitnet_status bitnet_score(bitnet_session *session, const int32_t *ids, size_t n_ids,
                                      size_t stride, bitnet_score_result *result,
                                      bitnet_error *err);

#ifdef __cplusplus
}
#endif
#endif
