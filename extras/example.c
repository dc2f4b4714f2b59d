/* example.c - quantises four weights, unpacks their codes and multiplies with them; then asks how
 * a program walks through memory.
 *
 * cc example.c $(pkg-config --cflags --libs bitnet-extras) -o example */
#include <stdio.h>

#include "bitnet_extras.h"

/* Which elements of a matrix of 64 columns a tile of 2 by 3 touches, and what that is called. */
static void walk(void)
{
    const uint64_t touched[6] = {0, 1, 2, 64, 65, 66};
    bitnet_access a = bitnet_access_pattern(touched, 6);
    if (a.kind == BITNET_ACCESS_TILED)
        printf("tiles of %d columns, rows %d apart\n", (int)a.n_columns, (int)a.row_pitch);
}

int main(void)
{
    const float weights[4] = {0.5f, -0.3f, 0.8f, -0.1f};
    const int8_t input[4] = {1, 2, 3, 4};
    uint8_t packed[1], codes[4];
    float scale, product;
    bitnet_error err;
    if (bitnet_quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMEAN, weights, 4, packed, sizeof packed,
                        &scale, 1, &err) != BITNET_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    bitnet_i2s_unpack(packed, 4, codes);
    if (bitnet_matmul_i2s(input, 4, codes, 4, &product, 1, 1, 1, 4, &err) != BITNET_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (int i = 0; i < 4; i++)
        printf("%+d ", bitnet_i2s_trit(codes[i]));
    printf("times %.3f: product %.3f\n", (double)scale, (double)(product * scale));
    walk();
    return 0;
}
