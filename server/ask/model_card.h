/* model_card.h - what a model's file says of itself, loaded or not: read from its header each time
 * it is asked for. */
#ifndef SRV_MODEL_CARD_H
#define SRV_MODEL_CARD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "jobs/models.h"

typedef struct srv_card {
    char architecture[64];
    char type[24]; /* of most weights: "I2_S" */
    uint64_t n_params;
    int64_t n_ctx, n_embd; /* trained with; of a hidden state. 0: the file does not say */
    json_t *metadata;      /* every key; arrays are null */
    const char *template;  /* tokenizer.chat_template, in metadata; NULL: none */
    char digest[65];       /* 64 hex digits that change with name, size or time of the file. No
                              checksum of its contents */
} srv_card;

/* False: the file cannot be read, or no memory; the card is empty then. _free in any case. */
bool srv_card_read(const srv_model_row *row, srv_card *out);
void srv_card_free(srv_card *card);
/* "40M", "2.4B": the number of weights for people. */
void srv_card_size(const srv_card *card, char out[16]);

#endif
