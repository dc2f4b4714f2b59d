/* attention_columns.h - scores over one block of an f16 cache that several tokens meet. Keys are
 * turned: a vector holds one element of VF positions, which meets the same element of a query in
 * all lanes, and the eight running sums of a score are one lane of eight vectors, so they are
 * folded without a shuffle. To fold sums that lie side by side in a vector costs as much as the
 * products. The bits are those of attention_rows.h. */
#ifndef BNET_ATTENTION_COLUMNS_H
#define BNET_ATTENTION_COLUMNS_H

#include "backend/cpu/kernels/attention_rows.h"
#include "backend/cpu/kernels/unroll.h"

enum {
    PACK = 4,                /* queries whose scores lie together: s[position][query] */
    COLUMN = BNET_BLOCK_POS, /* floats from one element of a key to the next */
    SUMS = 8,                /* running sums of a score */
    WIDE = 4,                /* vectors of positions, at most */
    COLUMN_SUMS = SUMS / 2 * PACK * WIDE * VF
};

/* VF rows of VF floats become columns at `to`, COLUMN floats apart. */
SIMD void store_turned(const vf rows[VF], float *to)
{
    vf quads[VF], out[VF / 4];
    for (int r = 0; r < VF; r += 4)
        vf_quads(rows + r, quads + r);
    for (size_t e = 0; e < 4; e++) {
        vf_parts(quads + e, 4, out);
        for (size_t p = 0; p < VF / 4; p++)
            vf_store(to + (4 * p + e) * COLUMN, out[p]);
    }
}

/* One vector for each query of a pack: their lanes one after the other. */
SIMD void store_pack(const vf each[PACK], float *s)
{
    vf quads[PACK], out[VF / 4];
    vf_quads(each, quads);
    for (size_t e = 0; e < 4; e += VF / 4) {
        vf_parts(quads + e, 1, out);
        for (size_t p = 0; p < VF / 4; p++)
            vf_store(s + 16 * p + 4 * e, out[p]);
    }
}

/* to[i][j] = element i of position j; positions from n_pos to the end of their vector are zeros. */
SIMD void turn_keys(const uint8_t *keys, size_t n_pos, size_t hd, float *to)
{
    for (size_t j = 0; j < n_pos; j += VF)
        for (size_t i = 0; i < hd; i += VF) {
            vf rows[VF];
            for (size_t r = 0; r < VF; r++)
                rows[r] = j + r < n_pos ? vf_from_f16(keys + 2 * ((j + r) * hd + i)) : vf_set(0);
            store_turned(rows, to + i * COLUMN + j);
        }
}

/* Running sums l .. l + ns - 1 of nq queries and nv vectors of positions; the last four are added
 * to the first four. */
SIMD void column_sums(const int nq, const int nv, const int ns, const float *q, size_t hd,
                      const float *keys, int l, vf_at (*sums)[PACK][WIDE])
{
    vf acc[SUMS / 2][PACK][WIDE];
    UNROLL for (int i = 0; i < ns * nq * nv; i++) acc[i / (nq * nv)][i / nv % nq][i % nv] =
        vf_set(0);
    for (size_t i = (size_t)l; i < hd; i += SUMS)
        UNROLL for (int m = 0; m < ns; m++)
        {
            vf kv[WIDE];
            UNROLL for (int v = 0; v < nv; v++) kv[v] =
                vf_load(keys + (i + (size_t)m) * COLUMN + (size_t)(v * VF));
            UNROLL for (int a = 0; a < nq; a++)
            {
                vf x = vf_set(q[(size_t)a * hd + i + (size_t)m]);
                UNROLL for (int v = 0; v < nv; v++) acc[m][a][v] = vf_fma(x, kv[v], acc[m][a][v]);
            }
        }
    UNROLL for (int i = 0; i < ns * nq * nv; i++)
    {
        vf sum = acc[i / (nq * nv)][i / nv % nq][i % nv];
        vf_at *to = &sums[l % (SUMS / 2) + i / (nq * nv)][i / nv % nq][i % nv];
        if (l >= SUMS / 2)
            sum = *to + sum;
        *to = sum;
    }
}

/* s of the positions of nv vectors, whose keys begin at `keys`; f is scratch. For few queries and
 * positions more of their sums are in flight. */
SIMD void score_columns(const int nq, const int nv, const float *q, size_t hd, const float *keys,
                        float scale, float *s, vf_at (*f)[PACK][WIDE])
{
    const int room = IN_FLIGHT / (nq == 3 ? 4 : nq) / nv, ns = BNET_MIN(room, SUMS / 2);
    for (int l = 0; l < SUMS; l += ns)
        column_sums(nq, nv, ns, q, hd, keys, l, f);
    for (int v = 0; v < nv; v++, s += PACK * VF) {
        vf each[PACK] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};
        for (int a = 0; a < nq; a++)
            each[a] = ((f[0][a][v] + f[1][a][v]) + (f[2][a][v] + f[3][a][v])) * vf_set(scale);
        store_pack(each, s);
    }
}

/* s[j][query] for n_pos positions, and for those that fill the last vector; scratch has COLUMN_SUMS
 * floats. */
SIMD void scores_turned(const int nq, const float *q, size_t hd, const float *keys, size_t n_pos,
                        float scale, float *s, float *scratch)
{
    vf_at(*f)[PACK][WIDE] = (vf_at(*)[PACK][WIDE])scratch;
    const size_t end = (n_pos + VF - 1) / VF, most = nq <= 2 ? WIDE : IN_FLIGHT / PACK;
    size_t v = 0;
    for (; v + most <= end; v += most)
        score_columns(nq, (int)most, q, hd, keys + v * VF, scale, s + v * VF * PACK, f);
    for (; v + 2 <= end; v += 2)
        score_columns(nq, 2, q, hd, keys + v * VF, scale, s + v * VF * PACK, f);
    if (v < end)
        score_columns(nq, 1, q, hd, keys + v * VF, scale, s + v * VF * PACK, f);
}

#endif
