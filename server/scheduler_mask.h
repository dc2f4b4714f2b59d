/* scheduler_mask.h - which tokens a grammar allows next, for one choice. */
#ifndef SRV_SCHEDULER_MASK_H
#define SRV_SCHEDULER_MASK_H

#include "scheduler_impl.h"

/* A mask that stands at the beginning of a text. The grammar outlives it. Fails: NOT_COMPILED (this
 * build has no grammars), MEMORY. */
bitnet_status srv_mask_open(bitnet_engine *engine, bitnet_grammar *grammar, srv_mask **out,
                            bitnet_error *err);
void srv_mask_close(srv_mask *m);
/* What may come next, one bit per id, as bitnet_constraints has it. Lives until the next call. */
bitnet_status srv_mask_allowed(srv_mask *m, const uint32_t **words, bitnet_error *err);
/* The id was chosen. *done: the text is complete and nothing may follow. Fails: ERROR (it was not
 * allowed). */
bitnet_status srv_mask_take(srv_mask *m, int32_t id, bool *done, bitnet_error *err);

#endif
