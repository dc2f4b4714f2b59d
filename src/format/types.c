/* types.c - the type table and the one place that knows how many bytes a tensor has. */
#include "format/blocks.h"

#include <strings.h>

#define SIZE_OF(NAME, s)                                                                           \
    _Static_assert(BNET_BLOCK_BYTES_##NAME == sizeof(s), #NAME ": block bytes and struct "         \
                                                               "disagree")
SIZE_OF(F32, float);
SIZE_OF(F16, uint16_t);
SIZE_OF(BF16, uint16_t);
SIZE_OF(Q4_0, block_q4_0);
SIZE_OF(Q8_0, block_q8_0);
SIZE_OF(Q6_K, block_q6_k);
SIZE_OF(TQ1_0, block_tq1_0);
SIZE_OF(TQ2_0, block_tq2_0);
_Static_assert(BNET_BLOCK_BYTES_I2_S * 4 == BNET_BLOCK_ELEMS_I2_S, "I2_S: two bits per weight");

#define TYPE(id, NAME, block, bytes, kind)                                                         \
    _Static_assert((block) > 0 && (bytes) > 0 && (bytes) <= 8 * (block),                           \
                   #NAME ": impossible block");
#include "format/tensor_types.inc"
#undef TYPE

static const bnet_type_info table[] = {
#define TYPE(id, NAME, block, bytes, kind) {BNET_##NAME, #NAME, block, bytes, BNET_KIND_##kind},
#include "format/tensor_types.inc"
#undef TYPE
};

const bnet_type_info *bnet_type_find(uint32_t id)
{
    for (size_t i = 0; i < BNET_COUNT(table); i++)
        if ((uint32_t)table[i].type == id)
            return &table[i];
    return NULL;
}

const bnet_type_info *bnet_type_by_name(const char *name)
{
    for (size_t i = 0; i < BNET_COUNT(table); i++)
        if (strcasecmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

bool bnet_type_is_ternary(bnet_type t)
{
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    return info && info->kind == BNET_KIND_TERNARY;
}

/* A matrix [k, m] of TL2: the place of the scale is a formula, not the bytes used (FORMATS.md). */
static bool tl2_bytes(uint64_t k, uint64_t m, uint64_t *out)
{
    uint64_t triples, pairs, size;
    if (k < 256 || !bnet_mul(k - 256, m, &triples) || !bnet_mul(triples / 3, 5, &triples) ||
        !bnet_mul(256, m, &pairs) || !bnet_mul(pairs / 2, 4, &pairs) ||
        !bnet_add(triples / 8, pairs / 8, &size) || !bnet_round_up(size, 32, &size))
        return false;
    return bnet_add(size, 32, out);
}

/* Bytes in front of every row, before its blocks. */
static uint64_t row_header(bnet_type t)
{
    switch (t) {
    case BNET_IQ1_BN:
        return 2;
    case BNET_IQ2_BN:
    case BNET_IQ2_BN_R4:
        return 4;
    default:
        return 0;
    }
}

bool bnet_type_bytes(bnet_type t, uint64_t n_cols, uint64_t n_rows, uint64_t *out)
{
    const bnet_type_info *info = bnet_type_find((uint32_t)t);
    uint64_t n;
    if (!info || n_cols % info->n_elems != 0 || (t == BNET_IQ2_BN_R4 && n_rows % 4 != 0))
        return false;
    if (t == BNET_TL2)
        return tl2_bytes(n_cols, n_rows, out);
    if (!bnet_mul(n_cols / info->n_elems, info->n_bytes, &n) || !bnet_add(n, row_header(t), &n) ||
        !bnet_mul(n, n_rows, &n))
        return false;
    bool tail = t == BNET_I2_S || t == BNET_TL1; /* 32 bytes, the scale in the first four */
    return bnet_add(n, tail ? 32 : 0, out);
}
