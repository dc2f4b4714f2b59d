/* sampler.h - what tests see of the sampler beyond bitnet.h. */
#ifndef BNET_SAMPLER_H
#define BNET_SAMPLER_H

#include "ops/pass.h"

/* Weights are integers: exp of the scaled logit in units of 2^-40, so sums are exact in any order.
 */
#define BNET_WEIGHT_ONE ((uint64_t)1 << 40)

int bnet_sampler_vocab(const bitnet_sampler *s);
/* Around everything that chooses several tokens with the sampler, on behalf of `who`: meanwhile
 * bitnet_sampler_pick and others that enter are refused (ARGUMENT). Entering again for the same
 * `who` is legal. NULL is no sampler: nothing is done. */
bitnet_status bnet_sampler_enter(bitnet_sampler *s, const void *who, const char *call,
                                 bitnet_error *err);
void bnet_sampler_leave(bitnet_sampler *s, const void *who);
/* True: it draws nothing and has no penalties, so its choices may be made in any order. */
bool bnet_sampler_still(const bitnet_sampler *s);
/* From now on the id is never chosen, as if its logit were minus infinity; or it may be again. An
 * id outside the vocabulary is ignored. False: no memory. */
bool bnet_sampler_forbid(bitnet_sampler *s, int32_t id, bool forbid);
/* Which logits the next pick after this history can depend on. want->ids belongs to the sampler,
 * until it is asked again. False: on all of them, as far as can be told. */
bool bnet_sampler_want(bitnet_sampler *s, const int32_t *history, size_t n_history,
                       bnet_top_want *want);
/* bitnet_sampler_pick for whoever has entered. */
bitnet_status bnet_sampler_pick_all(bitnet_sampler *s, const float *logits, const int32_t *history,
                                    size_t n_history, int32_t *id, bitnet_error *err);
/* The same where only these logits are known, and they hold all that is wanted: the same
 * choice. */
bitnet_status bnet_sampler_pick_among(bitnet_sampler *s, const bnet_top *top,
                                      const int32_t *history, size_t n_history, int32_t *id,
                                      bitnet_error *err);
/* The distribution that the next pick would draw from, best first: ids and weights of the
 * survivors, at most cap of them; *n is their number, *total the sum of all their weights. Draws
 * nothing. temperature must not be 0. */
bitnet_status bnet_sampler_distribution(bitnet_sampler *s, const float *logits,
                                        const int32_t *history, size_t n_history, int32_t *ids,
                                        uint64_t *weights, size_t cap, size_t *n, uint64_t *total,
                                        bitnet_error *err);

#endif
