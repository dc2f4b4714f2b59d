/* batch.h - the inside of a batch, shared by batch.c and batch_answer.c. */
#ifndef BNET_BATCH_H
#define BNET_BATCH_H

#include "engine/engine.h"

/* One item of the step that runs. */
typedef struct bnet_task {
    bitnet_batch_item *item;
    int first_row, n_rows;             /* in the pass of its group */
    bool all;                          /* its rows need all logits */
    bitnet_sampler_state saved, begun; /* its sampler before the step, and before the last pass */
} bnet_task;

struct bitnet_batch {
    bnet_busy busy; /* with a step */
    bitnet_engine *engine;
    int n_tokens;
    const bnet_scratch
        *before[2]; /* workspaces used last, of the engine's model and of its spare */
    /* of the step that runs, [n_tokens] each */
    bnet_task *tasks;
    bitnet_session **sessions; /* of a group */
    size_t n_sessions;         /* of these, in the pass that runs */
    size_t *ends;              /* their positions after it */
    int32_t *row_task;         /* whose each row of the pass is, counted from the group's first */
    bitnet_status first;       /* failure of an item, or OK */
    size_t n_again;            /* lost tokens that it may still compute again */
};

/* The item fails alone: its session stays as it is. */
static inline void bnet_item_fails(bitnet_batch *b, bitnet_batch_item *item, bitnet_status st)
{
    item->status = st;
    if (b->first == BITNET_OK)
        b->first = st;
}

/* Answers what n tasks want of the pass they shared (batch_answer.c). Fails only as the backend
 * does; what is wrong with one task's logits becomes its item's status. */
bitnet_status bnet_batch_answer(bitnet_batch *b, bnet_workspace *ws, bnet_task *tasks, size_t n,
                                bitnet_error *err);
/* Which of a task's rows are asked for anything, and whether all logits are. */
void bnet_batch_want(bnet_task *t);

#endif
