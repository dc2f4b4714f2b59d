/* example.c - quantises four weights, unpacks their codes and multiplies with them.
 *
 * cc example.c $(pkg-config --cflags --libs bitnet-extras) -o example */
#include <stdio.h>

#include "bitnet_extras.h"

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
    return 0;
}
