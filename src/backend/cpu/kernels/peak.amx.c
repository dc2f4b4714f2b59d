/* peak.amx.c - the rate of tdpbusd: 16x64 bytes times 64x16 into 16x16 sums, six of them in flight.
 */
#include <immintrin.h>

#include "backend/cpu/peak.h"

enum { TILES = 6, ROWS = 16, ROW_BYTES = 64 };

/* What ldtilecfg reads: palette 1, eight tiles of 16 rows of 64 bytes. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

uint64_t bnet_peak_tdpbusd_amx(size_t n_rounds, uint64_t *sink)
{
    tile_config config = {.palette = 1};
    _Alignas(64) uint8_t data[ROWS * ROW_BYTES];
    memset(data, (int)(*sink & 3), sizeof data);
    for (int t = 0; t < 8; t++) {
        config.row_bytes[t] = ROW_BYTES;
        config.rows[t] = ROWS;
    }
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_loadd(6, data, ROW_BYTES);
    _tile_loadd(7, data, ROW_BYTES);
    for (size_t i = 0; i < n_rounds; i++) {
        _tile_dpbusd(0, 6, 7);
        _tile_dpbusd(1, 6, 7);
        _tile_dpbusd(2, 6, 7);
        _tile_dpbusd(3, 6, 7);
        _tile_dpbusd(4, 6, 7);
        _tile_dpbusd(5, 6, 7);
    }
    _tile_stored(0, data, ROW_BYTES);
    _tile_release();
    *sink = data[0];
    return (uint64_t)n_rounds * TILES * ROWS * ROWS * ROW_BYTES * 2;
}
