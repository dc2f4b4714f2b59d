/* status.c - texts of statuses, error messages, checks of options, one line to the caller's log,
 * and the clock. */
#include "base/str.h"

#include <stdio.h>
#include <time.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bitnet reads little-endian files in place: big-endian hosts are not supported"
#endif

const char *bitnet_version(void)
{
    return BITNET_VERSION;
}

int bitnet_api_version(void)
{
    return BITNET_API_VERSION;
}

const char *bitnet_precision_text(bitnet_precision p)
{
    static const char *const texts[] = {"fp32", "fp16", "bf16", "auto"};
    return (unsigned)p < BNET_COUNT(texts) ? texts[p] : "unknown";
}

const char *bitnet_status_text(bitnet_status status)
{
    switch (status) {
#define CASE(name, number, text)                                                                   \
    case BITNET_##name:                                                                            \
        return text;
        BITNET_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown status";
}

/* Characters that a terminal obeys instead of showing them, or that turn the direction of the text
 * beside them; and the separators of lines. */
static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x061c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* The character at s, or the escape that stands for it, into out; returns its length, at most 6,
 * and in *len how much of s that is. */
static size_t show(const char *s, size_t n, char out[8], size_t *len)
{
    int k = bnet_utf8_len(s, n);
    uint32_t c = k > 0 ? bnet_utf8_decode(s, k) : (unsigned char)*s;
    *len = k > 0 ? (size_t)k : 1;
    if (k <= 0 || c < 0x20 || c == 0x7f)
        return (size_t)snprintf(out, 8, "\\x%02x", (unsigned)c & 0xff);
    if (is_control(c))
        return (size_t)snprintf(out, 8, "\\u%04x", (unsigned)c & 0xffff);
    memcpy(out, s, *len);
    return *len;
}

/* Escapes what must not reach a terminal in a finished message. */
static void make_visible(char *message, size_t cap)
{
    char whole[1024], one[8];
    size_t n = strlen(message), len;
    for (size_t i = 0; i < n; i += len)
        if (show(message + i, n - i, one, &len) != len) {
            memcpy(whole, message, n);
            bnet_quote(whole, n, message, cap);
            return;
        }
}

bitnet_status bnet_fail(bitnet_error *err, bitnet_status status, const char *fmt, ...)
{
    if (!err)
        return status;
    err->status = status;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    make_visible(err->message, sizeof err->message);
    return status;
}

bitnet_status bnet_no_memory(bitnet_error *err, const char *what)
{
    return bnet_fail(err, BITNET_MEMORY, "out of memory: %s", what);
}

bitnet_status bnet_wrap(bitnet_error *err, bitnet_status status, const char *fmt, ...)
{
    if (!err)
        return status;
    char inner[BITNET_MESSAGE_MAX], prefix[BITNET_MESSAGE_MAX];
    memcpy(inner, err->message, sizeof inner);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    int n = snprintf(err->message, sizeof err->message, "%s: ", prefix);
    if (n > 0 && (size_t)n < sizeof err->message) {
        size_t room = sizeof err->message - (size_t)n - 1, len = strnlen(inner, sizeof inner - 1);
        len = BNET_MIN(len, room);
        memcpy(err->message + n, inner, len);
        err->message[(size_t)n + len] = '\0';
    }
    err->status = status;
    make_visible(err->message, sizeof err->message);
    return status;
}

const char *bnet_errno_text(int e, char *buf, size_t cap)
{
    char tmp[128] = "";
    snprintf(buf, cap, "%s", strerror_r(e, tmp, sizeof tmp)); /* the GNU form: returns the text */
    return buf;
}

const char *bnet_quote(const char *s, size_t n, char *buf, size_t cap)
{
    size_t o = 0, i = 0, len;
    for (; i < n && o + 8 < cap; i += len)
        o += show(s + i, n - i, buf + o, &len);
    if (i < n && o + 4 <= cap) {
        memcpy(buf + o, "...", 3);
        o += 3;
    }
    buf[BNET_MIN(o, cap - 1)] = '\0';
    return buf;
}

/* ---- sizes and ranges of option structs ---- */

/* No options struct will ever be longer: a larger size is an uninitialised field. */
enum { LARGEST = 4096 };

static bitnet_status check_tail(const unsigned char *src, size_t from, size_t to, const char *name,
                                bitnet_error *err)
{
    for (size_t i = from; i < to; i++)
        if (src[i])
            return bnet_fail(
                err, BITNET_ARGUMENT,
                "%s: struct_size is %zu and sets a field (at byte %zu) that this library, "
                "version %s, does not know; update the library",
                name, to, i, BITNET_VERSION);
    return BITNET_OK;
}

bitnet_status bnet_options_copy(void *dst, size_t size, const void *src, const char *name,
                                bitnet_error *err)
{
    if (!src)
        return BITNET_OK;
    size_t given;
    memcpy(&given, src, sizeof given);
    if (given < sizeof given || given > LARGEST)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: struct_size is %zu, must be %zu..%d; call the _init function first",
                         name, given, sizeof given, LARGEST);
    bitnet_status st = check_tail(src, BNET_MIN(size, given), given, name, err);
    if (st != BITNET_OK)
        return st;
    memcpy(dst, src, BNET_MIN(size, given));
    memcpy(dst, &size, sizeof size);
    return BITNET_OK;
}

bitnet_status bnet_hand_out(const void *data, size_t n, size_t size, void *out, size_t cap,
                            size_t *n_out, const char *what, bitnet_error *err)
{
    *n_out = n;
    size_t n_copy = BNET_MIN(n, cap);
    if (n_copy && out)
        memcpy(out, data, n_copy * size);
    if (n > cap || (n && !out))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "%s: the result has %zu elements, the buffer holds %zu; call again", what,
                         n, out ? cap : 0);
    return BITNET_OK;
}

bitnet_status bnet_check_int(const char *owner, const char *field, int64_t value, int64_t lo,
                             int64_t hi, bitnet_error *err)
{
    if (value >= lo && value <= hi)
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT, "%s: %s is %lld, must be %lld..%lld", owner, field,
                     (long long)value, (long long)lo, (long long)hi);
}

bitnet_status bnet_check_float(const char *owner, const char *field, double value, double lo,
                               double hi, bitnet_error *err)
{
    if (value >= lo && value <= hi) /* false for NaN */
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT, "%s: %s is %g, must be %g..%g", owner, field, value, lo,
                     hi);
}

/* ---- one call at a time ---- */

bitnet_status bnet_busy_enter(bnet_busy *busy, const void *who, const char *call, const char *what,
                              bitnet_error *err)
{
    const void *nobody = NULL;
    if (atomic_compare_exchange_strong(busy, &nobody, who))
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT,
                     "%s: the %s is in use by a call that has not returned; neither a callback of "
                     "that call nor another thread may use it meanwhile",
                     call, what);
}

void bnet_busy_leave(bnet_busy *busy, const void *who)
{
    atomic_compare_exchange_strong(busy, &who, NULL);
}

/* ---- log and time ---- */

void bnet_logf(const bnet_log *log, bitnet_log_level level, const char *module, const char *fmt,
               ...)
{
    if (!log || !log->fn)
        return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    make_visible(line, sizeof line);
    log->fn(log->user, level, module, line);
}

double bnet_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
