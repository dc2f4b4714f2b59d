/* choose.h - the next tokens after a pass, by the samplers of its rows. */
#ifndef BNET_CHOOSE_H
#define BNET_CHOOSE_H

#include "sampler/sampler.h"
#include "model/model.h"

typedef struct bnet_choice {
    bitnet_sampler *sampler;
    const int32_t *tokens; /* [n_tokens] of the timeline, that of the row included */
    size_t n_tokens;
    /* results */
    bitnet_status status; /* of the choice: ERROR if no logit can be chosen */
    int32_t next;
} bnet_choice;

/* Chooses for rows [first, first + n) of the last pass; n <= BNET_HEAD_ROWS. The weights of the
 * head are read as few times as the backend can: once for all rows whose samplers need few logits,
 * once for the others. A sampler may serve several rows and draws in their order. Fails only
 * as the backend does; then samplers may have moved. What is wrong with a row is its status, and
 * the first such message is in err. */
bitnet_status bnet_choose(bnet_workspace *ws, int first, bnet_choice *rows, int n,
                          bitnet_error *err);

#endif
