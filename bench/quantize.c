/* quantize.c - how fast float weights become ternary: the reference and the functions of this CPU's
 * provider in turn, on the same values. Prints MB/s of floats read, the best of all rounds.
 * Usage: quantize [values] [rounds] */
#include <stdio.h>
#include <stdlib.h>

#include "device/cpu_features.h"
#include "ops/provider.h"

enum { SCALE_OF = 256 };

static const bnet_provider *provider_here(void)
{
#if defined(__x86_64__)
    const uint32_t wide =
        BNET_CPU_AVX512F | BNET_CPU_AVX512BW | BNET_CPU_AVX512VL | BNET_CPU_AVX512DQ;
    uint32_t has = bnet_cpu_features();
    return bnet_provider_find((has & wide) == wide  ? "avx512"
                              : has & BNET_CPU_AVX2 ? "avx2"
                                                    : "fallback");
#else
    return bnet_provider_find("neon");
#endif
}

static double time_ms(bnet_quantize_fn *fn, bitnet_qtype q, const float *x, size_t n, size_t block,
                      uint8_t *out, float *scales)
{
    double start = bnet_now_ms();
    fn(q, BITNET_SCALE_ABSMEAN, x, n, out, scales, n / block + (n % block != 0), block);
    return bnet_now_ms() - start;
}

static void measure(const bnet_provider *p, int q, size_t block, const float *x, size_t n,
                    int rounds, uint8_t *out, float *scales)
{
    static const char *const names[] = {"i2s", "tl1", "tl2"};
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < 2 * rounds; i++) {
        double ms = time_ms(i % 2 ? p->quantize : bnet_ref_quantize, (bitnet_qtype)q, x, n, block,
                            out, scales);
        best[i % 2] = ms < best[i % 2] ? ms : best[i % 2];
    }
    double mb = (double)n * sizeof *x / 1e6;
    printf("%s, a scale for %zu: reference %.0f MB/s, %s %.0f MB/s\n", names[q], block,
           mb / best[0] * 1e3, p->name, mb / best[1] * 1e3);
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 18;
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 40;
    float *x = malloc(n * sizeof *x), *scales = malloc((n / SCALE_OF + 1) * sizeof *scales);
    uint8_t *out = malloc(n);
    uint32_t seed = 1;
    if (!x || !scales || !out || n == 0)
        return 1;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
    for (int q = 0; q <= BITNET_QTYPE_TL2; q++) {
        measure(provider_here(), q, SCALE_OF, x, n, rounds, out, scales);
        measure(provider_here(), q, n, x, n, rounds, out, scales);
    }
    free(x);
    free(scales);
    free(out);
    return 0;
}
