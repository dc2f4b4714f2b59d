/* stops.h - stop strings over a stream of text: what may be shown, what must wait, where it ends.
 */
#ifndef BNET_STOPS_H
#define BNET_STOPS_H

#include "base/str.h"

/* Every stop string must be non-empty valid UTF-8 of at most BITNET_STOP_MAX bytes. */
bitnet_status bnet_stops_check(const char *const *stops, size_t n_stops, bitnet_error *err);

/* `tail` is text not yet shown, in whole characters. Returns how many of its bytes may be shown
 * now: up to the earliest stop string if one is complete (*hit true; the tail ends there), else all
 * but the longest end that could be the beginning of one. */
size_t bnet_stops_scan(const char *const *stops, size_t n_stops, const char *tail, size_t n,
                       bool *hit);

#endif
