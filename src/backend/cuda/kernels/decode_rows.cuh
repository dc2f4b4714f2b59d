/* decode_rows.cuh - what a block of the decode kernel attends to: which positions, where their keys
 * and values lie in shared memory and registers, and how they come there. Part of decode_sm90.cu.
 */
#ifndef BNET_DECODE_ROWS_CUH
#define BNET_DECODE_ROWS_CUH

#include "decode_exchange.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

enum { ROW = BNET_DECODE_ROW, ROWS = BNET_DECODE_ROWS, HALF = ROWS / 2 };
enum { ROUND = 16 * WARPS, ROUNDS = ROWS / ROUND, PART = 128 };
enum { GIVERS = H16_DIM / 16 };           /* warps that have outputs; the others add up weights */
enum { RECORD = BNET_DECODE_RECORD / 4 }; /* floats: [GROUP][16] outputs, [GROUP] tops, weights */
enum { IN_REGISTERS = HALF * 16 / THREADS };

static_assert((int)ROWS == (int)THREADS, "a thread has a row");
static_assert((int)GIVERS + 2 * GROUP == (int)WARPS, "a warp adds up half the weights of a head");

/* Where things lie: rows of keys, rows of values (the second half of those in registers, and where
 * keys were when these have been used), weights of positions as high and low halves [2 GROUP][PS],
 * the largest scores [head][warp] as ordered() has them, sums of weights [2 GROUP], outputs of
 * other blocks. */
struct attention_view {
    uint8_t *keys, *values;
    uint32_t *p;
    int *top;
    float *sum, *records;
};

static __device__ __forceinline__ attention_view attention_of(const context &c)
{
    uint8_t *values = c.weights + ROWS * ROW;
    uint32_t *p = (uint32_t *)(values + HALF * ROW);
    int *top = (int *)(p + 2 * GROUP * PS);
    float *sum = (float *)(top + GROUP * WARPS);
    attention_view v = {c.weights, values, p, top, sum, sum + 2 * GROUP};
    return v;
}

/* What a block attends to. */
static __device__ __forceinline__ share share_of(const bnet_cu_decode_args &a, int at, bool near)
{
    uint32_t pos = (uint32_t)max(at, 0), first = a.matrix_blocks[near ? 0 : 1];
    uint32_t splits = near ? 1 : a.splits, block = blockIdx.x - first;
    uint32_t per = (pos / splits + 16) / 16 * 16; /* pos + 1 positions */
    share s;
    s.splits = splits;
    s.head = block / splits;
    s.split = block % splits;
    s.begin = min(s.split * per, pos + 1);
    s.rows = min(per, pos + 1 - s.begin);
    s.newest = pos - s.begin < s.rows ? pos - s.begin : (uint32_t)NONE;
    s.pos = pos;
    s.real = at >= 0;
    s.attends = blockIdx.x >= first && s.head < a.n_kv_heads;
    s.att = bnet_decode_part_at(&a, AT_ATT) + s.head * (a.n_heads / a.n_kv_heads) * H16_DIM;
    return s;
}

/* The key of a position in layer 0; its value lies part_bytes further. */
static __device__ __forceinline__ uint8_t *key_at(const context &c, const share &s, uint32_t p)
{
    size_t block = (size_t)c.b->table[p / KV_POS] * c.a.n_kv_heads + s.head;
    return c.b->kv + block * 2 * c.a.part_bytes + p % KV_POS * (H16_DIM * 2);
}

/* What this block published in the layer before the last is NONE again. */
static __device__ __forceinline__ void clear_heads(const context &c, const share &s)
{
    uint32_t dims = H16_DIM / s.splits, i = threadIdx.x;
    if (i < c.a.n_heads / c.a.n_kv_heads * dims)
        publish(c.exchange(2) + s.att + i / dims * H16_DIM + s.split * dims + i % dims,
                __int_as_float(NONE));
    settle(c);
}

static __device__ __forceinline__ void copy_row(const context &c, uint8_t *to, const uint8_t *from)
{
    bulk_copy(shared_addr(to), from, 2 * H16_DIM, shared_addr(&c.b->full[0]));
}

/* Values of a block's second half: a thread has a sixteenth of eight rows. */
struct values_held {
    uint4 v[IN_REGISTERS];

    static __device__ __forceinline__ uint32_t row(uint32_t j)
    {
        return HALF + threadIdx.x / 16 + j * (THREADS / 16);
    }
    static __device__ __forceinline__ uint32_t at(uint32_t j)
    {
        return (row(j) - HALF) * ROW + threadIdx.x % 16 * 16;
    }
};

/* Rows from `first` on of a layer on their way, as many as fit. */
static __device__ __forceinline__ void stage(const context &c, const share &s, uint32_t first,
                                             uint32_t layer, values_held &held)
{
    uint32_t i = threadIdx.x, p = s.begin + first;
    uint32_t rows = min(s.pos > p ? s.pos - p : 0, min(s.rows - first, (uint32_t)ROWS));
    attention_view v = attention_of(c);
    if (layer >= c.a.n_layers)
        return;
    if (i == 0)
        expect(shared_addr(&c.b->full[0]), (rows + min(rows, (uint32_t)HALF)) * 2 * H16_DIM);
    if (i < rows) {
        const uint8_t *key = key_at(c, s, p + i) + layer * c.b->layer_bytes;
        copy_row(c, v.keys + i * ROW, key);
        if (i < HALF)
            copy_row(c, v.values + i * ROW, key + c.a.part_bytes);
    }
    if (s.rows - first <= HALF)
        return;
#pragma unroll
    for (uint32_t j = 0; j < IN_REGISTERS; j++) {
        held.v[j] = make_uint4(0, 0, 0, 0);
        if (held.row(j) < rows)
            held.v[j] = load_stream(key_at(c, s, p + held.row(j)) + layer * c.b->layer_bytes +
                                    c.a.part_bytes + i % 16 * 16);
    }
}

#endif

#endif
