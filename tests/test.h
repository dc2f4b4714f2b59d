/* test.h - what every cmocka test includes: the headers cmocka wants, in its order, and where
 * shared data lies. */
#ifndef BNET_TEST_H
#define BNET_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* Reference data lives outside the repository: $BITNET_SHARED, else ../shared beside the checkout.
 * Copies the path of `rel` inside it into buf; returns NULL (the test then says skip()) where it is
 * missing. */
static inline const char *shared_path(const char *rel, char *buf, size_t cap)
{
    const char *root = getenv("BITNET_SHARED");
    struct stat st;
    if (root && *root)
        snprintf(buf, cap, "%s/%s", root, rel);
    else
        snprintf(buf, cap, "%s/../shared/%s", TEST_SOURCE_DIR, rel);
    if (stat(buf, &st) == 0)
        return buf;
    print_message("no reference data at %s (set BITNET_SHARED)\n", buf);
    return NULL;
}

/* BITNET_GOLDEN_QUICK=1 is for sanitizers and emulators: the same paths, fewer of the cases. */
static inline bool test_quick(void)
{
    const char *value = getenv("BITNET_GOLDEN_QUICK");
    return value && *value && strcmp(value, "0") != 0;
}

/* `make test T=name` runs single tests: TEST_FILTER is the pattern (*, ?) of their names. */
__attribute__((constructor)) static void filter_tests(void)
{
    const char *pattern = getenv("TEST_FILTER");
    if (pattern && *pattern)
        cmocka_set_test_filter(pattern);
}

/* A small deterministic generator for test data (splitmix64); the seed is printed by tests that use
 * it. */
static inline uint64_t test_rand(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
