/* base.h - what every layer stands on: allocation, checked arithmetic, error text, logging, time.
 *
 * Invariants: all memory of the library passes through bnet_alloc and its kin; every size computed
 * from a file goes through bnet_mul / bnet_add; a failing function fills the error once, where it
 * failed. */
#ifndef BNET_BASE_H
#define BNET_BASE_H

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "bitnet.h"

#define BNET_COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define BNET_MIN(a, b) ((a) < (b) ? (a) : (b))
#define BNET_MAX(a, b) ((a) > (b) ? (a) : (b))
#define BNET_ALIGN     64 /* of every allocation: one cache line, one AVX-512 register */

/* ---- memory (alloc.c) ---- */

/* NULL on failure; n_bytes 0 gives a valid pointer. The result is BNET_ALIGN aligned. */
void *bnet_alloc(size_t n_bytes);
/* The same without the alignment, for a library of many small pieces (jansson). */
void *bnet_alloc_small(size_t n_bytes);
/* The same for megabytes that are streamed: begins at a huge page, and huge pages are asked for. */
void *bnet_alloc_huge(size_t n_bytes);
void *bnet_calloc(size_t n, size_t size); /* zeroed; NULL also if n * size overflows */
/* Grows *p (elements of `size` bytes, *cap of them) so that it holds at least `need`. False: no
 * memory, *p unchanged. Growth is geometric. */
bool bnet_grow(void *p, size_t *cap, size_t need, size_t size);
char *bnet_strdup(const char *s);
char *bnet_memdup(const void *s, size_t n); /* n bytes and a NUL behind them */
void bnet_free(void *p);
/* What was freed and the allocator keeps for later goes back to the system, where it can be told.
 */
void bnet_alloc_trim(void);

/* ---- checked arithmetic: false on overflow, *out untouched then ---- */

static inline bool bnet_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool bnet_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Rounds up to a multiple of a power of two; false on overflow. */
static inline bool bnet_round_up(uint64_t a, uint64_t align, uint64_t *out)
{
    if (!bnet_add(a, align - 1, &a))
        return false;
    *out = a & ~(align - 1);
    return true;
}

/* ---- little-endian bytes, any alignment (the library refuses big-endian hosts at compile time)
 * ---- */

static inline uint16_t bnet_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
static inline uint32_t bnet_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static inline uint64_t bnet_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
static inline float bnet_f32(const void *p)
{
    float v;
    memcpy(&v, p, 4);
    return v;
}
static inline void bnet_put_u16(void *p, uint16_t v)
{
    memcpy(p, &v, 2);
}
static inline void bnet_put_u32(void *p, uint32_t v)
{
    memcpy(p, &v, 4);
}
static inline void bnet_put_u64(void *p, uint64_t v)
{
    memcpy(p, &v, 8);
}
static inline void bnet_put_f32(void *p, float v)
{
    memcpy(p, &v, 4);
}

/* ---- errors (status.c) ---- */

/* Fills err (if not NULL) and returns status, so a failing line reads `return bnet_fail(err, ...)`.
 */
bitnet_status bnet_fail(bitnet_error *err, bitnet_status status, const char *fmt, ...)
    BITNET_PRINTF(3, 4);
bitnet_status bnet_no_memory(bitnet_error *err, const char *what); /* "out of memory: <what>" */
/* Puts "prefix: " before the message of a failure on its way up (at most once per layer). */
bitnet_status bnet_wrap(bitnet_error *err, bitnet_status status, const char *fmt, ...)
    BITNET_PRINTF(3, 4);
/* The text of an errno value, thread-safe; copies into buf and returns it. */
const char *bnet_errno_text(int e, char *buf, size_t cap);
/* Copies s for printing inside a message, cut at `cap` with "...". What could command a terminal or
 * turn the direction of its text is escaped: C0 and bytes of no character as \xNN, C1 and the
 * bidirectional controls as \uNNNN. bnet_fail, bnet_wrap and bnet_logf do it with all they say. */
const char *bnet_quote(const char *s, size_t n, char *buf, size_t cap);

/* ---- option structs of programs compiled against another version of bitnet.h (status.c) ---- */

/* Copies the caller's options over *dst, which holds the defaults and is `size` bytes. Every
 * options struct begins with a size_t struct_size. A shorter struct (older program) leaves the
 * missing fields at their defaults; a longer one (newer program) must be zero beyond what we know.
 * src NULL: all defaults. `name` stands in messages. */
bitnet_status bnet_options_copy(void *dst, size_t size, const void *src, const char *name,
                                bitnet_error *err);

/* The two shapes of complaint about a field: "session options: n_batch is 0, must be 1..65536". */
bitnet_status bnet_check_int(const char *owner, const char *field, int64_t value, int64_t lo,
                             int64_t hi, bitnet_error *err);
bitnet_status bnet_check_float(const char *owner, const char *field, double value, double lo,
                               double hi, bitnet_error *err);

/* ---- results of any length in a caller's buffer (status.c) ---- */

/* Reports the full number of elements of `size` bytes in *n_out; copies as many as fit, so that a
 * first call may ask with cap 0. Fails ARGUMENT if not all did; `what` begins the message. */
bitnet_status bnet_hand_out(const void *data, size_t n, size_t size, void *out, size_t cap,
                            size_t *n_out, const char *what, bitnet_error *err);

/* ---- one call at a time (status.c) ---- */

/* Who works with an object now; NULL: nobody. Whoever enters is known by an address of its own. */
typedef _Atomic(const void *) bnet_busy;

/* Fails ARGUMENT if somebody has entered and not left, in this thread (a callback that calls back)
 * or another; `call` and `what` stand in the message ("append", "session"). */
bitnet_status bnet_busy_enter(bnet_busy *busy, const void *who, const char *call, const char *what,
                              bitnet_error *err);
/* Nothing if somebody else has entered. */
void bnet_busy_leave(bnet_busy *busy, const void *who);

/* ---- log (status.c) ---- */

typedef struct bnet_log {
    bitnet_log_fn fn; /* NULL: silent */
    void *user;
} bnet_log;

/* `log` may be NULL. */
void bnet_logf(const bnet_log *log, bitnet_log_level level, const char *module, const char *fmt,
               ...) BITNET_PRINTF(4, 5);

/* ---- time ---- */

double bnet_now_ms(void); /* monotonic */

#endif
