/* attention.scalar.c - attention over one block of the cache. */
#include "backend/cpu/kernels/attention_rows.h"

#define ATTENTION(name)                                                                            \
    void bnet_attention_##name##_scalar(const bnet_attend *a)                                      \
    {                                                                                              \
        attend_rows(row_##name, a);                                                                \
    }
ATTENTION(f32)
ATTENTION(f16)
ATTENTION(i8)
