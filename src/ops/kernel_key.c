/* kernel_key.c - names of operations, formats and activations, from their lists. */
#include "ops/kernel_key.h"

static const char *const op_names[BNET_OPS] = {
    "",
#define OP(key, name) name,
#include "ops/ops.inc"
#undef OP
};

static const char *const format_names[BNET_FORMATS] = {
    "",
#define FORMAT(key, name) name,
#include "ops/formats.inc"
#undef FORMAT
};

static const char *const dtype_names[BNET_DTYPES] = {
    "",
#define DTYPE(key, name) name,
#include "ops/dtypes.inc"
#undef DTYPE
};

static const char *name_at(const char *const *names, size_t n, size_t i)
{
    return i < n ? names[i] : "";
}

/* 0, that is NONE: not found. */
static size_t find(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 1; name && i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return 0;
}

const char *bnet_op_name(bnet_op op)
{
    return name_at(op_names, BNET_OPS, (size_t)op);
}

bnet_op_set bnet_op_parts(bnet_op op)
{
    const bnet_op_set norm_quantize = BNET_OP_BIT(RMSNORM) | BNET_OP_BIT(QUANTIZE);
    bnet_op_set own = UINT64_C(1) << op;
    switch (op) {
    case BNET_OP_NORM_QUANTIZE:
        return own | norm_quantize;
    case BNET_OP_ADD_NORM_QUANTIZE:
        return own | norm_quantize | BNET_OP_BIT(ADD);
    case BNET_OP_GLU_NORM_QUANTIZE:
        return own | norm_quantize | BNET_OP_BIT(GLU);
    default:
        return own;
    }
}

const char *bnet_format_name(bnet_format f)
{
    return name_at(format_names, BNET_FORMATS, (size_t)f);
}

const char *bnet_dtype_name(bnet_dtype d)
{
    return name_at(dtype_names, BNET_DTYPES, (size_t)d);
}

bnet_op bnet_op_find(const char *name)
{
    return (bnet_op)find(op_names, BNET_OPS, name);
}

bnet_format bnet_format_find(const char *name)
{
    return (bnet_format)find(format_names, BNET_FORMATS, name);
}

bnet_dtype bnet_dtype_find(const char *name)
{
    return (bnet_dtype)find(dtype_names, BNET_DTYPES, name);
}

bnet_format bnet_format_of_type(bnet_type t)
{
    switch (t) {
#define TYPE(id, key, block, bytes, kind)                                                          \
    case BNET_##key:                                                                               \
        return BNET_FORMAT_##key;
#include "format/tensor_types.inc"
#undef TYPE
    }
    return BNET_FORMAT_NONE;
}

const bnet_type_info *bnet_format_type(bnet_format f)
{
    return f ? bnet_type_by_name(bnet_format_name(f)) : NULL;
}

bool bnet_format_ternary(bnet_format f)
{
    return f == BNET_FORMAT_I2S || f == BNET_FORMAT_I2S_R16 || f == BNET_FORMAT_I2S_B256;
}
