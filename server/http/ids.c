/* ids.c - see ids.h. Hides where chance comes from. */
#include "http/ids.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* Chance from the system; where it has none (before its first seed) the clock must do. */
static void fill(unsigned char *bytes, size_t n)
{
    struct timespec t;
    if (getrandom(bytes, n, GRND_NONBLOCK) == (ssize_t)n)
        return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t v = (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15u + (uint64_t)t.tv_sec;
    for (size_t i = 0; i < n; i++, v = v * 6364136223846793005u + 1442695040888963407u)
        bytes[i] = (unsigned char)(v >> 56);
}

void srv_id(char out[SRV_ID_MAX], const char *prefix)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char bytes[24];
    size_t at = (size_t)snprintf(out, 16, "%s", prefix);
    at = at > 15 ? 15 : at;
    fill(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        out[at++] = letters[bytes[i] % (sizeof letters - 1)];
    out[at] = '\0';
}

uint64_t srv_random(void)
{
    unsigned char bytes[8];
    uint64_t v;
    fill(bytes, sizeof bytes);
    memcpy(&v, bytes, sizeof v);
    return v;
}
