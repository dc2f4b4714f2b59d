/* rate_limit.h - how often somebody may call: a bucket of tokens for each, in a table that never
 * grows. */
#ifndef SRV_RATE_LIMIT_H
#define SRV_RATE_LIMIT_H

#include <stdint.h>

typedef struct srv_rates srv_rates;

/* A rate of 0 lets everybody pass. NULL: out of memory. */
srv_rates *srv_rates_open(double per_s);
void srv_rates_close(srv_rates *r);
/* Takes one token of `who`, as of `now_ms`. 0: pass; else so many seconds until there is one. */
int srv_rates_take(srv_rates *r, uint64_t who, double now_ms);

#endif
