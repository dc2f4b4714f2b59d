/* torture.h - runs a scenario again and again, each time with another allocation failing, until
 * none does. */
#ifndef TEST_TORTURE_H
#define TEST_TORTURE_H

#include "test.h"

#include "bitnet.h"
#include "torture/interpose.h"

/* Does everything, releases everything, returns the first status that was not OK. */
typedef bitnet_status (*scenario)(void *user, bitnet_error *err);

/* Fails unless the scenario reports MEMORY with a message, or does without that memory, and leaves
 * nothing behind. */
static inline void torture_check(bitnet_status st, const bitnet_error *err, long at, long leaked)
{
    if (st != BITNET_OK && st != BITNET_MEMORY)
        fail_msg("allocation %ld: status %d: %s", at, (int)st, err->message);
    if (st == BITNET_MEMORY && (err->status != BITNET_MEMORY || err->message[0] == '\0'))
        fail_msg("allocation %ld: no message", at);
    if (leaked != 0)
        fail_msg("allocation %ld: %ld allocations were not freed (status %d: %s)", at, leaked,
                 (int)st, err->message);
}

/* step: 1 for every allocation; more where time is short (sanitizers). Returns how many allocations
 * the scenario has. */
static inline long torture(scenario run, void *user, bool onward, long step)
{
    bitnet_error err = {0};
    for (int i = 0; i < 2;
         i++) { /* what libraries keep for good is made here, and the scenario must work at all */
        bitnet_status st = run(user, &err);
        if (st != BITNET_OK)
            fail_msg("the scenario fails by itself: %s", err.message);
    }
    long n_done, n_refused = 0;
    for (long at = 0;; at += step) {
        memset(&err, 0, sizeof err);
        long before = interpose_live();
        interpose_start(at, onward);
        bitnet_status st = run(user, &err);
        n_done = interpose_stop();
        torture_check(st, &err, at, interpose_live() - before);
        n_refused += st == BITNET_MEMORY;
        if (at >= n_done) {
            if (st != BITNET_OK)
                fail_msg("nothing failed, but status is %d: %s", (int)st, err.message);
            break;
        }
        if (onward && st == BITNET_OK)
            fail_msg("without any memory from allocation %ld on all went well", at);
    }
    print_message("%ld allocations%s, %ld refusals\n", n_done,
                  onward ? ", all failing from the n-th on" : "", n_refused);
    return n_done;
}

#endif
