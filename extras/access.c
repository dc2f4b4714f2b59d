/* access.c - how a list of indices walks through memory. */
#include "bitnet_extras.h"

/* b - a if that is a 64-bit integer. */
static bool difference(uint64_t a, uint64_t b, int64_t *out)
{
    bool negative = b < a;
    uint64_t d = negative ? a - b : b - a;
    if (d > INT64_MAX)
        return false;
    *out = negative ? -(int64_t)d : (int64_t)d;
    return true;
}

/* All neighbours of index[0..n) are `stride` apart. */
static bool evenly(const uint64_t *index, size_t n, int64_t stride)
{
    for (size_t i = 1; i < n; i++) {
        int64_t d;
        if (!difference(index[i - 1], index[i], &d) || d != stride)
            return false;
    }
    return true;
}

/* At least two whole rows of at least two columns, all equally far apart, none overlapping. */
static bool tiled(const uint64_t *index, size_t n, bitnet_access *out)
{
    size_t columns = 1;
    while (columns < n && index[columns] == index[columns - 1] + 1 && index[columns] != 0)
        columns++;
    int64_t pitch;
    if (columns < 2 || columns == n || n % columns || !difference(index[0], index[columns], &pitch))
        return false;
    if ((pitch < 0 ? (uint64_t)-pitch : (uint64_t)pitch) < columns)
        return false;
    for (size_t row = columns; row < n; row += columns) {
        int64_t d;
        if (!difference(index[row - columns], index[row], &d) || d != pitch ||
            !evenly(index + row, columns, 1))
            return false;
    }
    *out = (bitnet_access){BITNET_ACCESS_TILED, 0, pitch, (int64_t)columns};
    return true;
}

bitnet_access bitnet_access_pattern(const uint64_t *index, size_t n)
{
    bitnet_access a = {BITNET_ACCESS_SEQUENTIAL, 0, 0, 0};
    int64_t stride;
    if (n < 2 || !index)
        return a;
    if (difference(index[0], index[1], &stride) && evenly(index, n, stride)) {
        if (stride == 1 && n > 2)
            return a;
        return (bitnet_access){BITNET_ACCESS_STRIDED, stride, 0, 0};
    }
    if (tiled(index, n, &a))
        return a;
    return (bitnet_access){BITNET_ACCESS_RANDOM, 0, 0, 0};
}
