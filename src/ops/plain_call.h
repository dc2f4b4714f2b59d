/* plain_call.h - a single operation from host memory to host memory, as programs ask for it alone.
 * Part of the contract of backend.h. */
#ifndef BNET_PLAIN_CALL_H
#define BNET_PLAIN_CALL_H

#include "base/base.h"
#include "bitnet_device.h"

typedef enum bnet_plain_op {
    BNET_PLAIN_MATMUL_I2S, /* in: int8 [m][k], codes [k][n]; out: float [m][n]; sizes below 2^24 */
    BNET_PLAIN_MATMUL,     /* in: float [m][k], [k][n]; out: float [m][n]; in `precision` */
    BNET_PLAIN_QUANTIZE,   /* in: float [n]; type: bitnet_qtype; out: bytes, scales [k] of m each */
    BNET_PLAIN_QK256,   /* in: codes, scales or none, float [k]; type: code map; out: float [m] */
    BNET_PLAIN_CONVERT, /* in: [n]; type: bitnet_conversion; out: [n] */
    BNET_PLAIN_VECTOR,  /* in: float [n], and another one; type: bitnet_vector; out: float [n] */
    BNET_PLAIN_SOFTMAX, /* in: float [m][n]; out: float [m][n] */
    BNET_PLAIN_ARGMAX,  /* in: float [m][n]; out: int32 [m], -1: no finite value */
    BNET_PLAIN_OPS
} bnet_plain_op;

/* What a call does one after the other; each is timed. */
typedef enum bnet_plain_step {
    BNET_STEP_CAPABILITY,
    BNET_STEP_KERNEL,
    BNET_STEP_ALLOC,
    BNET_STEP_CONVERT_IN,
    BNET_STEP_EXECUTE,
    BNET_STEP_CONVERT_OUT,
    BNET_STEP_RECORD,
    BNET_PLAIN_STEPS
} bnet_plain_step;

typedef struct bnet_plain {
    bnet_plain_op op;
    int type, rule;
    bitnet_precision precision; /* never AUTO */
    size_t m, n, k;
    const void *in[3];
    size_t in_bytes[3]; /* 0: none */
    void *out[2];
    size_t out_bytes[2];
    /* what became of it */
    const char *kernel; /* id; NULL: none was called */
    double ms[BNET_PLAIN_STEPS];
} bnet_plain;

#endif
