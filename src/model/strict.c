/* strict.c - the look at all weights that strict mode takes before anything is computed: values
 * that are not finite, tensors that are all zero, scales that are not positive, invalid codes. */
#include "model/strict.h"

#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/str.h"
#include "format/tensor_stats.h"
#include "format/codec.h"

enum { NAMED = 3 };

/* A flaw in bytes of four codes each, found eight bytes at a time; I2_S holds most of a model. */
typedef struct code_flaws {
    bool three, all_zero, all_plus, all_minus;
} code_flaws;

static code_flaws look_at_codes(const uint8_t *p, size_t n)
{
    uint64_t three = 0, zero = 0, plus = 0, minus = 0;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t w = bnet_u64(p + i);
        three |= w & (w >> 1) & 0x5555555555555555u;
        zero |= w ^ 0x5555555555555555u; /* code 1 everywhere */
        plus |= w ^ 0xaaaaaaaaaaaaaaaau;
        minus |= w;
    }
    return (code_flaws){three != 0, zero == 0, plus == 0, minus == 0};
}

/* I2_S: n / 4 bytes of codes (n a multiple of 128), then the scale. */
static bool i2s_suspicious(const bnet_tensor *t, char *out, size_t cap)
{
    uint64_t n = bnet_tensor_elems(t);
    float scale = bnet_i2s_scale(t->data, n);
    code_flaws f = look_at_codes(t->data, (size_t)(n / 4));
    bnet_map_release(t->data, (size_t)t->n_bytes);
    if (!(scale > 0 && isfinite(scale)))
        snprintf(out, cap, "scale is %g", (double)scale);
    else if (f.three)
        snprintf(out, cap, "there are codes of 3");
    else if (f.all_zero)
        snprintf(out, cap, "all zero");
    else if (f.all_plus || f.all_minus)
        snprintf(out, cap, "all weights are %s1", f.all_plus ? "+" : "-");
    else
        return false;
    return true;
}

/* *wanted false: the caller has cancelled. */
static bool suspicious(const bnet_tensor *t, bnet_progress *progress, bool *wanted, char *out,
                       size_t cap)
{
    bitnet_tensor_stats s;
    if (t->type == BNET_I2_S) {
        bool bad = i2s_suspicious(t, out, cap);
        *wanted = bnet_progress_add(progress, t->n_bytes);
        return bad;
    }
    *wanted = bnet_tensor_stats(t, progress, &s);
    snprintf(out, cap, "%s", s.suspicious);
    return s.suspicious[0] != '\0';
}

bitnet_status bnet_strict_weights(const bnet_gguf *g, bnet_progress *progress, bitnet_error *err)
{
    bnet_str list = {0};
    size_t n_bad = 0;
    char what[160];
    bool wanted = true;
    for (size_t i = 0; wanted && i < bnet_gguf_n_tensors(g); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(g, i);
        bool bad = suspicious(t, progress, &wanted, what, sizeof what);
        if (bad && n_bad++ < NAMED)
            bnet_str_addf(&list, "%s%s: %s", list.n ? "; " : "", t->name, what);
    }
    bitnet_status st = BITNET_OK;
    if (!wanted)
        st = bnet_fail(err, BITNET_CANCELLED, "the check of the weights was cancelled");
    else if (n_bad)
        st = bnet_fail(err, BITNET_SUSPICIOUS,
                       "strict mode: %zu tensor%s suspicious: %s%s; bitnet inspect tells more",
                       n_bad, n_bad == 1 ? " looks" : "s look", list.data ? list.data : "",
                       n_bad > NAMED ? "; ..." : "");
    bnet_str_free(&list);
    return st;
}
