/* scheduler_mask.c - the grammar of a choice (scheduler_mask.h). This build has no grammars: a job
 * that wants one is refused, so that no text leaves the server that its grammar would not allow. */
#include "scheduler_mask.h"

struct srv_mask {
    bitnet_grammar *grammar;
};

bitnet_status srv_mask_open(bitnet_engine *engine, bitnet_grammar *grammar, srv_mask **out,
                            bitnet_error *err)
{
    (void)engine, (void)grammar, (void)out;
    return srv_error(err, BITNET_NOT_COMPILED, "job: grammar: this build has no grammars");
}

void srv_mask_close(srv_mask *m)
{
    (void)m;
}

bitnet_status srv_mask_allowed(srv_mask *m, const uint32_t **words, bitnet_error *err)
{
    (void)m, (void)words;
    return srv_error(err, BITNET_NOT_COMPILED, "job: grammar: this build has no grammars");
}

bitnet_status srv_mask_take(srv_mask *m, int32_t id, bool *done, bitnet_error *err)
{
    (void)m, (void)id, (void)done;
    return srv_error(err, BITNET_NOT_COMPILED, "job: grammar: this build has no grammars");
}
