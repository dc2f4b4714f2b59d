/* gguf_kv.c - the keys of a GGUF file: reading the records, and handing out values with a type and
 * a range. */
#include "format/gguf_impl.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *name;
    uint32_t n_bytes;
} vtypes[] = {
    [BNET_GGUF_U8] = {"u8", 1},         [BNET_GGUF_I8] = {"i8", 1},
    [BNET_GGUF_U16] = {"u16", 2},       [BNET_GGUF_I16] = {"i16", 2},
    [BNET_GGUF_U32] = {"u32", 4},       [BNET_GGUF_I32] = {"i32", 4},
    [BNET_GGUF_F32] = {"f32", 4},       [BNET_GGUF_BOOL] = {"bool", 1},
    [BNET_GGUF_STRING] = {"string", 0}, [BNET_GGUF_ARRAY] = {"array", 0},
    [BNET_GGUF_U64] = {"u64", 8},       [BNET_GGUF_I64] = {"i64", 8},
    [BNET_GGUF_F64] = {"f64", 8},
};

uint32_t bnet_gguf_elem_bytes(bnet_gguf_vtype t)
{
    return (size_t)t < BNET_COUNT(vtypes) ? vtypes[t].n_bytes : 0;
}

const char *bnet_gguf_vtype_name(bnet_gguf_vtype t)
{
    return (size_t)t < BNET_COUNT(vtypes) ? vtypes[t].name : "unknown";
}

/* ---- records ---- */

static bitnet_status read_vtype(gguf_cursor *c, const char *what, bnet_gguf_vtype *out)
{
    uint32_t id = 0;
    uint64_t at = c->pos;
    bitnet_status st = bnet_gguf_take_u32(c, what, &id);
    if (st == BITNET_OK && id >= BNET_COUNT(vtypes))
        return bnet_gguf_fail_at(c, at, "%s %u is unknown", what, id);
    *out = (bnet_gguf_vtype)id;
    return st;
}

/* Steps over `count` strings: the one walk over them that opening makes. */
static bitnet_status skip_strings(gguf_cursor *c, uint64_t count)
{
    const uint8_t *data = c->g->data;
    uint64_t end = c->g->n_bytes, pos = c->pos;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t n = end - pos >= 8 ? bnet_u64(data + pos) : 0;
        if (end - pos < 8)
            return bnet_gguf_fail_at(c, pos, "truncated at string %llu of %llu" GGUF_CUT,
                                     (unsigned long long)i + 1, (unsigned long long)count);
        if (n > end - pos - 8)
            return bnet_gguf_fail_at(
                c, pos,
                "string %llu of %llu has a length of %llu, the file has %llu bytes left" GGUF_CUT,
                (unsigned long long)i + 1, (unsigned long long)count, (unsigned long long)n,
                (unsigned long long)(end - pos - 8));
        pos += 8 + n;
    }
    c->pos = pos;
    return BITNET_OK;
}

static bitnet_status check_array(gguf_cursor *c, const bnet_gguf_kv *kv, uint64_t at)
{
    uint64_t left = c->g->n_bytes - c->pos, n_bytes;
    uint32_t size = kv->elem == BNET_GGUF_STRING ? 8 : bnet_gguf_elem_bytes(kv->elem);
    if (kv->elem == BNET_GGUF_ARRAY)
        return bnet_gguf_fail_at(c, at, "an array of arrays is not supported");
    if (kv->count > GGUF_MAX_ARRAY)
        return bnet_gguf_fail_at(c, at, "the array has %llu elements, the limit is %llu",
                                 (unsigned long long)kv->count, (unsigned long long)GGUF_MAX_ARRAY);
    if (!bnet_mul(kv->count, size, &n_bytes) || n_bytes > left)
        return bnet_gguf_fail_at(
            c, at,
            "the array of %llu values (%s) needs more bytes than the %llu that are left" GGUF_CUT,
            (unsigned long long)kv->count, bnet_gguf_vtype_name(kv->elem),
            (unsigned long long)left);
    return BITNET_OK;
}

static bitnet_status read_array(gguf_cursor *c, bnet_gguf_kv *kv)
{
    uint64_t at = c->pos;
    const uint8_t *p = NULL;
    bitnet_status st = read_vtype(c, "the element type", &kv->elem);
    if (st == BITNET_OK)
        st = bnet_gguf_take_u64(c, "the array count", &kv->count);
    if (st == BITNET_OK)
        st = check_array(c, kv, at);
    if (st != BITNET_OK)
        return st;
    kv->data = c->g->data + c->pos;
    kv->offset = c->pos;
    if (kv->elem == BNET_GGUF_STRING)
        return skip_strings(c, kv->count);
    return bnet_gguf_take(c, kv->count * bnet_gguf_elem_bytes(kv->elem), "the array", &p);
}

static bitnet_status read_kv(gguf_cursor *c, bnet_gguf_kv *kv)
{
    const uint8_t *p;
    bitnet_status st = bnet_gguf_take_name(c, "key", GGUF_MAX_KEY_BYTES);
    kv->key = c->name;
    if (st == BITNET_OK)
        st = read_vtype(c, "the value type", &kv->type);
    if (st != BITNET_OK)
        return st;
    kv->elem = kv->type;
    kv->count = 1;
    if (kv->type == BNET_GGUF_ARRAY)
        return read_array(c, kv);
    kv->data = c->g->data + c->pos;
    kv->offset = c->pos;
    if (kv->type == BNET_GGUF_STRING)
        return skip_strings(c, 1);
    return bnet_gguf_take(c, bnet_gguf_elem_bytes(kv->type), "the value", &p);
}

bitnet_status bnet_gguf_read_keys(bnet_gguf *g, gguf_cursor *c)
{
    g->kv = bnet_calloc(g->n_kv, sizeof *g->kv);
    if (!g->kv)
        return bnet_no_memory(c->err, g->label);
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < g->n_kv; i++) {
        c->index = i;
        st = read_kv(c, &g->kv[i]);
    }
    return st;
}

/* ---- typed reads ---- */

static bitnet_status wrong_type(const bnet_gguf *g, const bnet_gguf_kv *kv, const char *want,
                                bitnet_error *err)
{
    char key[160];
    bool array = kv->type == BNET_GGUF_ARRAY;
    return bnet_fail(err, BITNET_MODEL, "%s: key %s: must be %s, it is %s%s (offset 0x%llx)",
                     g->label, bnet_quote(kv->key.data, kv->key.n, key, sizeof key), want,
                     array ? "an array of " : "", bnet_gguf_vtype_name(kv->elem),
                     (unsigned long long)kv->offset);
}

static const bnet_gguf_kv *look_up(const bnet_gguf *g, const char *key, bool *found)
{
    const bnet_gguf_kv *kv = bnet_gguf_find(g, key);
    if (found)
        *found = kv != NULL;
    return kv;
}

/* The integer at p as a magnitude that always fits: sign apart. */
static bool integer_at(bnet_gguf_vtype t, const uint8_t *p, bool *negative, uint64_t *v)
{
    uint64_t raw = 0;
    uint32_t n = bnet_gguf_elem_bytes(t);
    *negative = false;
    if (t == BNET_GGUF_F32 || t == BNET_GGUF_F64 || t == BNET_GGUF_BOOL || n == 0)
        return false;
    memcpy(&raw, p, n);
    bool is_signed =
        t == BNET_GGUF_I8 || t == BNET_GGUF_I16 || t == BNET_GGUF_I32 || t == BNET_GGUF_I64;
    if (is_signed && raw >> (8 * n - 1)) {
        *negative = true;
        raw = n == 8 ? 0 - raw : (UINT64_C(1) << 8 * n) - raw;
    }
    *v = raw;
    return true;
}

bitnet_status bnet_gguf_int(const bnet_gguf *g, const char *key, int64_t lo, int64_t hi,
                            int64_t *out, bool *found, bitnet_error *err)
{
    const bnet_gguf_kv *kv = look_up(g, key, found);
    bool negative;
    uint64_t v;
    if (!kv)
        return BITNET_OK;
    if (!integer_at(kv->type, kv->data, &negative, &v))
        return wrong_type(g, kv, "an integer", err);
    bool fits = negative ? v <= UINT64_C(1) << 63 : v <= INT64_MAX;
    int64_t value = negative ? (int64_t)(0 - v) : (int64_t)v;
    if (!fits || value < lo || value > hi)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: key %s: the value %s%llu is not in %lld..%lld (offset 0x%llx)",
                         g->label, key, negative ? "-" : "", (unsigned long long)v, (long long)lo,
                         (long long)hi, (unsigned long long)kv->offset);
    *out = value;
    return BITNET_OK;
}

static double float_at(bnet_gguf_vtype t, const uint8_t *p)
{
    double d;
    if (t == BNET_GGUF_F32)
        return bnet_f32(p);
    memcpy(&d, p, sizeof d);
    return d;
}

bitnet_status bnet_gguf_float(const bnet_gguf *g, const char *key, double lo, double hi,
                              double *out, bool *found, bitnet_error *err)
{
    const bnet_gguf_kv *kv = look_up(g, key, found);
    if (!kv)
        return BITNET_OK;
    if (kv->type != BNET_GGUF_F32 && kv->type != BNET_GGUF_F64)
        return wrong_type(g, kv, "a float", err);
    double v = float_at(kv->type, kv->data);
    if (!isfinite(v))
        return bnet_fail(err, BITNET_MODEL,
                         "%s: key %s: the value %g is not finite (offset 0x%llx)", g->label, key, v,
                         (unsigned long long)kv->offset);
    if (v < lo || v > hi)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: key %s: the value %g is not in %g..%g (offset 0x%llx)", g->label, key,
                         v, lo, hi, (unsigned long long)kv->offset);
    *out = v;
    return BITNET_OK;
}

bitnet_status bnet_gguf_bool(const bnet_gguf *g, const char *key, bool *out, bool *found,
                             bitnet_error *err)
{
    const bnet_gguf_kv *kv = look_up(g, key, found);
    if (!kv)
        return BITNET_OK;
    if (kv->type != BNET_GGUF_BOOL)
        return wrong_type(g, kv, "a bool", err);
    *out = kv->data[0] != 0;
    return BITNET_OK;
}

bitnet_status bnet_gguf_string(const bnet_gguf *g, const char *key, bnet_span *out, bool *found,
                               bitnet_error *err)
{
    const bnet_gguf_kv *kv = look_up(g, key, found);
    if (!kv)
        return BITNET_OK;
    if (kv->type != BNET_GGUF_STRING)
        return wrong_type(g, kv, "a string", err);
    const uint8_t *p = kv->data;
    *out = bnet_gguf_next_string(&p);
    return BITNET_OK;
}

bitnet_status bnet_gguf_array(const bnet_gguf *g, const char *key, bnet_gguf_vtype elem,
                              const bnet_gguf_kv **out, bitnet_error *err)
{
    const bnet_gguf_kv *kv = bnet_gguf_find(g, key);
    if (kv && (kv->type != BNET_GGUF_ARRAY ||
               (kv->elem != elem && !(elem == BNET_GGUF_I32 && kv->elem == BNET_GGUF_U32)))) {
        char want[32];
        snprintf(want, sizeof want, "an array of %s", bnet_gguf_vtype_name(elem));
        return wrong_type(g, kv, want, err);
    }
    *out = kv;
    return BITNET_OK;
}

bnet_span bnet_gguf_next_string(const uint8_t **cursor)
{
    bnet_span s = {(const char *)*cursor + 8, (size_t)bnet_u64(*cursor)};
    *cursor += 8 + s.n;
    return s;
}
