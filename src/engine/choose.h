/* choose.h - the next tokens after a pass, by the samplers of its rows. */
#ifndef BNET_CHOOSE_H
#define BNET_CHOOSE_H

#include "sampler/sampler.h"
#include "model/model.h"

typedef struct bnet_choice {
    bitnet_sampler *sampler;
    const int32_t *tokens; /* [n_tokens] of the timeline, that of the row included */
    size_t n_tokens;
    int32_t next; /* is filled */
} bnet_choice;

/* Chooses for rows [first, first + n) of the last pass; n <= BNET_HEAD_ROWS. The weights of the
 * head are read as few times as the backend can: once for all rows whose samplers need few logits,
 * once for the others. A sampler may stand in several rows and draws in their order. On failure
 * samplers may have moved, and *failed is the row whose sampler failed, -1 if the head did. */
bitnet_status bnet_choose(bnet_workspace *ws, int first, bnet_choice *rows, int n, int *failed,
                          bitnet_error *err);

#endif
