/* gguf_tensors.c - the tensor infos of a GGUF file, and where the data of each one lies.
 *
 * Two passes: some types (I2_S, TL2, Q2_0) show what they are only by the bytes between a tensor
 * and the next one, so all offsets are read first, sorted, and then every tensor gets its span, its
 * type, its size. */
#include "format/codec.h"
#include "format/gguf_impl.h"

#include <stdlib.h>

/* ---- first pass: the records ---- */

static bitnet_status read_dims(gguf_cursor *c, bnet_tensor *t)
{
    uint64_t n = 1, at = c->pos;
    bitnet_status st = bnet_gguf_take_u32(c, "n_dims", &t->n_dims);
    if (st == BITNET_OK && (t->n_dims < 1 || t->n_dims > BNET_MAX_DIMS))
        return bnet_gguf_fail_at(c, at, "n_dims is %u, it must be 1 to %d", t->n_dims,
                                 BNET_MAX_DIMS);
    for (uint32_t d = 0; st == BITNET_OK && d < BNET_MAX_DIMS; d++) {
        t->ne[d] = 1;
        if (d >= t->n_dims)
            continue;
        at = c->pos;
        st = bnet_gguf_take_u64(c, "a dimension", &t->ne[d]);
        if (st == BITNET_OK && t->ne[d] == 0)
            return bnet_gguf_fail_at(c, at, "dimension %u is zero", d);
        if (st == BITNET_OK && (!bnet_mul(n, t->ne[d], &n) || n > INT64_MAX))
            return bnet_gguf_fail_at(c, at, "the product of the dimensions exceeds 2^63");
    }
    return st;
}

/* What is known about type numbers that cannot be read. */
static const char *type_hint(uint32_t id)
{
    if (id >= 31 && id <= 33)
        return ": weights rearranged for one CPU; quantise the model anew";
    if (id == 37)
        return ": a format of activations, never of weights";
    return "";
}

static bitnet_status read_type(gguf_cursor *c, bnet_tensor *t)
{
    uint32_t id = 0;
    uint64_t at = c->pos;
    bitnet_status st = bnet_gguf_take_u32(c, "the type", &id);
    if (st != BITNET_OK)
        return st;
    if (id > UINT16_MAX || !bnet_type_find(id))
        return bnet_gguf_fail_at(c, at, "unknown tensor type %u%s", id, type_hint(id));
    t->type = (bnet_type)id;
    return BITNET_OK;
}

static bitnet_status read_info(gguf_cursor *c, gguf_tensor *t)
{
    t->t.n_span = c->pos; /* the record's own place, for messages, until the second pass */
    bitnet_status st = bnet_gguf_take_name(c, "name", GGUF_NAME_CAP - 1);
    if (st != BITNET_OK)
        return st;
    memcpy(t->name, c->name.data, c->name.n); /* zeroed before: ends with a NUL */
    t->t.name = t->name;
    st = read_dims(c, &t->t);
    if (st == BITNET_OK)
        st = read_type(c, &t->t);
    if (st == BITNET_OK)
        st = bnet_gguf_take_u64(c, "the offset", &t->t.offset);
    return st;
}

bitnet_status bnet_gguf_read_infos(bnet_gguf *g, gguf_cursor *c)
{
    g->tensors = bnet_calloc(g->n_tensors, sizeof *g->tensors);
    if (!g->tensors)
        return bnet_no_memory(c->err, g->label);
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < g->n_tensors; i++) {
        c->index = i;
        st = read_info(c, &g->tensors[i]);
    }
    return st;
}

/* ---- second pass: places ---- */

/* From here on offsets count from the start of the file. */
static bitnet_status check_offset(bnet_gguf *g, gguf_cursor *c, bnet_tensor *t)
{
    uint64_t room = g->n_bytes - g->data_start, relative = t->offset;
    c->name = (bnet_span){t->name, strlen(t->name)};
    if (relative >= room)
        return bnet_gguf_fail_at(
            c, t->n_span,
            "its data offset 0x%llx lies past the end: the file has %llu bytes "
            "of tensor data",
            (unsigned long long)relative, (unsigned long long)room);
    t->offset += g->data_start;
    if (relative % g->alignment != 0)
        return bnet_gguf_fail_at(c, t->n_span,
                                 "its data offset 0x%llx is not a multiple of the alignment %llu",
                                 (unsigned long long)relative, (unsigned long long)g->alignment);
    t->data = g->data + t->offset;
    return BITNET_OK;
}

static bitnet_status find_data(bnet_gguf *g, gguf_cursor *c)
{
    bitnet_status st = BITNET_OK;
    c->name = (bnet_span){0};
    if (!bnet_round_up(c->pos, g->alignment, &g->data_start) || g->data_start > g->n_bytes)
        return bnet_gguf_fail_at(
            c, c->pos, "truncated: the file ends before the tensor data, which starts at 0x%llx",
            (unsigned long long)g->data_start);
    for (size_t i = 0; st == BITNET_OK && i < g->n_tensors; i++)
        st = check_offset(g, c, &g->tensors[i].t);
    return st;
}

static int compare_offsets(const void *pa, const void *pb)
{
    const bnet_tensor *a = *(bnet_tensor *const *)pa, *b = *(bnet_tensor *const *)pb;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a > b) - (a < b); /* file order */
}

/* True if `span` is exactly the size of type t for this shape, bare or padded. */
static bool span_is(const bnet_tensor *t, bnet_type type, uint64_t alignment)
{
    uint64_t n, padded;
    return bnet_type_bytes(type, t->ne[0], bnet_tensor_elems(t) / t->ne[0], &n) &&
           bnet_round_up(n, alignment, &padded) && t->n_span >= n && t->n_span <= padded;
}

/* Numbers 39 and 42 mean two formats each. */
static void settle_type(bnet_tensor *t, uint64_t alignment)
{
    if (t->type == BNET_TL2 && !span_is(t, BNET_TL2, alignment))
        t->type = BNET_MXFP4;
    else if (t->type == BNET_Q2_0 && !span_is(t, BNET_Q2_0, alignment) &&
             span_is(t, BNET_Q2_0_G128, alignment))
        t->type = BNET_Q2_0_G128;
}

static bitnet_status check_i2s(const bnet_gguf *g, gguf_cursor *c, const bnet_tensor *t)
{
    unsigned long long span = t->n_span, n = bnet_tensor_elems(t);
    switch (bnet_i2s_detect(t, g->alignment)) {
    case BNET_I2S_MICROSOFT:
        return BITNET_OK;
    case BNET_I2S_QK256:
        return bnet_gguf_fail_at(c, t->offset,
                                 "I2_S without a scale (QK256): %llu bytes for %llu weights, %llu "
                                 "with the scale; convert the model anew",
                                 span, n, n / 4 + 32);
    case BNET_I2S_BITNET32:
        return bnet_gguf_fail_at(c, t->offset,
                                 "I2_S in blocks of 32 with f16 scales (BitNet32-F16), %llu bytes: "
                                 "its codes are ambiguous; convert the model anew",
                                 span);
    case BNET_I2S_UNKNOWN:
        break;
    }
    return bnet_gguf_fail_at(c, t->offset,
                             "I2_S of unknown layout: %llu bytes for %llu weights where %llu and a "
                             "scale above zero are expected",
                             span, n, n / 4 + 32);
}

static bitnet_status check_size(const bnet_gguf *g, gguf_cursor *c, bnet_tensor *t)
{
    settle_type(t, g->alignment);
    const bnet_type_info *info = bnet_type_find((uint32_t)t->type);
    uint64_t n_rows = bnet_tensor_elems(t) / t->ne[0];
    if (t->ne[0] % info->n_elems != 0)
        return bnet_gguf_fail_at(c, t->offset, "rows of %llu elements do not fill %s blocks of %u",
                                 (unsigned long long)t->ne[0], info->name, info->n_elems);
    if (!bnet_type_bytes(t->type, t->ne[0], n_rows, &t->n_bytes))
        return bnet_gguf_fail_at(c, t->offset, "%llu rows of %llu elements are no size for %s",
                                 (unsigned long long)n_rows, (unsigned long long)t->ne[0],
                                 info->name);
    bitnet_status st = t->type == BNET_I2_S ? check_i2s(g, c, t) : BITNET_OK;
    if (st == BITNET_OK && t->n_bytes > g->n_bytes - t->offset)
        return bnet_gguf_fail_at(
            c, t->offset, "size %llu exceeds the file end, %llu bytes are left",
            (unsigned long long)t->n_bytes, (unsigned long long)(g->n_bytes - t->offset));
    return st;
}

/* One tensor of the sorted list; `next` is the one behind it or NULL. */
static bitnet_status place(const bnet_gguf *g, gguf_cursor *c, bnet_tensor *t,
                           const bnet_tensor *next)
{
    c->name = (bnet_span){t->name, strlen(t->name)};
    t->n_span = (next ? next->offset : g->n_bytes) - t->offset;
    if (t->n_span == 0)
        return bnet_gguf_fail_at(c, t->offset, "it starts where tensor %s starts", next->name);
    bitnet_status st = check_size(g, c, t);
    if (st == BITNET_OK && t->n_bytes > t->n_span)
        return bnet_gguf_fail_at(c, t->offset, "its %llu bytes overlap tensor %s at 0x%llx",
                                 (unsigned long long)t->n_bytes, next->name,
                                 (unsigned long long)next->offset);
    return st;
}

/* Unused bytes between tensors harm nothing, but a file that has them was written by an odd tool.
 */
static void warn_gaps(const bnet_gguf *g, const gguf_cursor *c, bnet_tensor *const *order)
{
    uint64_t end = g->data_start, n_gaps = 0, n_unused = 0, padded;
    const bnet_tensor *first = NULL;
    for (size_t i = 0; i < g->n_tensors; i++) {
        if (order[i]->offset > end) {
            first = first ? first : order[i];
            n_gaps++;
            n_unused += order[i]->offset - end;
        }
        end = order[i]->offset + order[i]->n_bytes;
        if (bnet_round_up(end, g->alignment, &padded))
            end = padded;
    }
    if (n_gaps)
        bnet_logf(c->log, BITNET_LOG_WARN, "gguf",
                  "%s: %llu unused bytes in %llu gaps between tensors, the first before %s",
                  g->label, (unsigned long long)n_unused, (unsigned long long)n_gaps, first->name);
    if (end < g->n_bytes)
        bnet_logf(c->log, BITNET_LOG_WARN, "gguf", "%s: %llu bytes behind the last tensor (0x%llx)",
                  g->label, (unsigned long long)(g->n_bytes - end), (unsigned long long)end);
}

static bitnet_status place_all(bnet_gguf *g, gguf_cursor *c, bnet_tensor **order)
{
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; i < g->n_tensors; i++)
        order[i] = &g->tensors[i].t;
    qsort(order, g->n_tensors, sizeof *order, compare_offsets);
    for (size_t i = 0; st == BITNET_OK && i < g->n_tensors; i++)
        st = place(g, c, order[i], i + 1 < g->n_tensors ? order[i + 1] : NULL);
    if (st == BITNET_OK)
        warn_gaps(g, c, order);
    return st;
}

/* Where the data of the tensors would end, counted from its start; *sum: all of them in a row. */
static bool extent(const bnet_gguf *g, uint64_t *end, uint64_t *sum)
{
    *end = *sum = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const bnet_tensor *t = &g->tensors[i].t;
        uint64_t n, last;
        if (!bnet_type_bytes(t->type, t->ne[0], bnet_tensor_elems(t) / t->ne[0], &n) ||
            !bnet_add(t->offset, n, &last) || !bnet_round_up(n, g->alignment, &n) ||
            !bnet_add(*sum, n, sum))
            return false;
        *end = BNET_MAX(*end, last);
    }
    return true;
}

/* The size the whole file must have, where this one is shorter and its tensors lie without gaps, as
 * in every sane file: it was cut, and its records are right. Else 0. The last tensor may be of a
 * kind that is smaller than its type says, so a few bytes do not count. */
static uint64_t promised_bytes(const bnet_gguf *g, uint64_t infos_end)
{
    uint64_t end, sum, start, whole;
    if (!extent(g, &end, &sum) || end > sum || !bnet_round_up(infos_end, g->alignment, &start) ||
        !bnet_add(start, end, &whole) || whole > UINT64_C(1) << 44)
        return 0;
    return whole > g->n_bytes + g->alignment ? whole : 0;
}

bitnet_status bnet_gguf_place_tensors(bnet_gguf *g, gguf_cursor *c)
{
    if (g->n_tensors == 0) /* a vocabulary alone may end before the padding */
        return BITNET_OK;
    c->promised = promised_bytes(g, c->pos);
    bitnet_status st = find_data(g, c);
    if (st != BITNET_OK)
        return st;
    bnet_tensor **order = bnet_calloc(g->n_tensors, sizeof *order);
    if (!order)
        return bnet_no_memory(c->err, g->label);
    st = place_all(g, c, order);
    bnet_free(order);
    return st;
}
