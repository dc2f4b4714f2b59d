/* validate_weights.c - synthetic weights of every format a kernel may read, made of values that
 * exist in files. */
#include "check/validate.h"

#include "format/codec.h"

uint64_t bnet_case_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static float trit(kernel_case *c, uint64_t row)
{
    if (c->fill != CASE_RANDOM)
        return row % 2 ? -1.0f : 1.0f;
    return (float)((int)(bnet_case_random(&c->seed) % 3) - 1);
}

/* One row of floats the format can hold. Blocks of i2s_b256 have scales of their own. */
static void fill_row(kernel_case *c, bool ternary, bool blocks, uint64_t row, float *x)
{
    for (uint64_t i = 0; i < c->s.k; i++)
        x[i] = !ternary ? (float)((int)(bnet_case_random(&c->seed) % 2001) - 1000) / 1000.0f
               : blocks ? trit(c, row) * ((row + i / 256) % 2 ? 0.25f : 0.5f)
                        : trit(c, row) * 0.5f;
}

static bool encode_rows(kernel_case *c, bool ternary, bool blocks, size_t row_bytes)
{
    float *x = bnet_alloc((size_t)c->s.k * sizeof *x);
    bool ok = x != NULL;
    for (uint64_t r = 0; ok && r < c->s.n; r++) {
        fill_row(c, ternary, blocks, r, x);
        ok = bnet_encode_row(c->tensor.type, x, c->bytes + r * row_bytes, (size_t)c->s.k);
    }
    bnet_free(x);
    return ok;
}

/* Byte by byte: any codes behind a sane scale. Q6_K has an encoder, which searches: it would take
 * longer than all that is done with the weights. */
static void craft_q6_k(kernel_case *c)
{
    for (uint64_t at = 0; at < c->tensor.n_bytes; at += 210) {
        for (int i = 0; i < 208; i++)
            c->bytes[at + (uint64_t)i] = (uint8_t)bnet_case_random(&c->seed);
        bnet_put_u16(c->bytes + at + 208, bnet_f32_to_f16(1.0f / 4096));
    }
}

/* The same for a format without an encoder. */
static void craft_iq4_nl(kernel_case *c)
{
    for (uint64_t at = 0; at < c->tensor.n_bytes; at += 18) {
        bnet_put_u16(c->bytes + at, bnet_f32_to_f16(1.0f / 128));
        for (int i = 2; i < 18; i++)
            c->bytes[at + (uint64_t)i] = (uint8_t)bnet_case_random(&c->seed);
    }
}

/* Rows with scales that differ, so that they cannot become I2_S. */
static void craft_iq2_bn(kernel_case *c, size_t row_bytes)
{
    for (uint64_t r = 0; r < c->s.n; r++) {
        uint8_t *row = c->bytes + r * row_bytes;
        bnet_put_f32(row, r % 2 ? 0.5f : 0.25f);
        for (size_t i = 4; i < row_bytes; i++)
            for (int f = 0; f < 4; f++)
                row[i] = (uint8_t)(row[i] << 2 | bnet_case_random(&c->seed) % 3);
    }
}

/* The type in which a format of kernels comes: "fallback" reads what has no kernel. */
static bool type_of(const bnet_kernel_record *k, bnet_type *out, bool *ternary)
{
    bool i8 = bnet_case_ternary(k);
    const bnet_type_info *t = bnet_format_type(k->format);
    bool known = true;
    *ternary = i8;
    if (k->format == BNET_FORMAT_I2S || k->format == BNET_FORMAT_I2S_R16)
        *out = BNET_F32; /* ternarised when it is prepared, so any K will do */
    else if (k->format == BNET_FORMAT_I2S_B256)
        *out = BNET_TQ2_0;
    else if (k->format == BNET_FORMAT_FALLBACK)
        *out = i8 ? BNET_IQ2_BN : BNET_IQ4_NL;
    else if (k->format == BNET_FORMAT_Q6_K_R4)
        *out = BNET_Q6_K; /* packed when it is prepared */
    else if (k->format == BNET_FORMAT_I8_R8)
        *out = BNET_F16; /* copied when it is scanned */
    else if (t)
        *out = t->type;
    else
        known = false;
    return known;
}

bitnet_status bnet_case_weight(kernel_case *c, const char **skip, bitnet_error *err)
{
    bool ternary;
    uint64_t row_bytes = 0;
    bnet_type type = BNET_F32;
    if (!type_of(c->rec, &type, &ternary)) {
        *skip = "no weights of this format can be made";
        return BITNET_OK;
    }
    if (!bnet_type_bytes(type, c->s.k, 1, &row_bytes)) {
        *skip = "k does not fit the blocks of the format";
        return BITNET_OK;
    }
    c->ternarise = ternary && type == BNET_F32;
    c->tensor = (bnet_tensor){.name = "synthetic.weight",
                              .n_dims = 2,
                              .ne = {c->s.k, c->s.n, 1, 1},
                              .type = type,
                              .n_bytes = row_bytes * c->s.n};
    c->bytes = bnet_calloc((size_t)c->s.n, (size_t)row_bytes);
    if (!c->bytes)
        return bnet_no_memory(err, "validation");
    c->tensor.data = c->bytes;
    if (type == BNET_IQ4_NL)
        craft_iq4_nl(c);
    else if (type == BNET_IQ2_BN)
        craft_iq2_bn(c, (size_t)row_bytes);
    else if (type == BNET_Q6_K)
        craft_q6_k(c);
    else if (!encode_rows(c, ternary, type == BNET_TQ2_0, (size_t)row_bytes))
        *skip = "the format has no encoder";
    return BITNET_OK;
}

bool bnet_case_weight_row(const kernel_case *c, uint64_t row, float *out)
{
    uint64_t row_bytes = 0;
    return c->bytes && bnet_type_bytes(c->tensor.type, c->s.k, 1, &row_bytes) &&
           bnet_decode_part(c->tensor.type, c->bytes + row * row_bytes, 0, (size_t)c->s.k, out);
}
