/* validate_pass.h - two copies of a small model, one on the device, one on the reference, that get
 * the same tokens; shared by the files that compare them. */
#ifndef BNET_VALIDATE_PASS_H
#define BNET_VALIDATE_PASS_H

#include "check/validate.h"

enum { PASS_TIMELINES = 36 };

typedef struct pass_side {
    bnet_backend *be;
    bnet_model *model;
    bnet_workspace *ws;
    bnet_kv *kv[PASS_TIMELINES];
} pass_side;

/* What was found in the passes of one kind. */
typedef struct finding {
    double cosine, logit, cached, first; /* the worst of each; first: cached in layer 0 */
    double bound;                        /* of logit and cached */
    char wrong[120];                     /* what differs first; empty: nothing */
} finding;

typedef struct pass_trial {
    validation_run *r;
    bnet_gguf *gguf;
    pass_side side[2]; /* the device, the reference */
    int n_pos[PASS_TIMELINES],
        n_before[PASS_TIMELINES]; /* positions now, and before these passes */
    uint64_t seed;
    finding f;
} pass_trial;

/* Are the matrices exactly the file's, after passes have put them together? Else f.wrong is set. */
bitnet_status bnet_pass_matrices(pass_trial *t, uint64_t *n_values);

#endif
