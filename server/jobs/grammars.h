/* grammars.h - grammars of one model, compiled once and kept for the next request that wants the
 * same: at most a few, the longest unused goes. */
#ifndef SRV_GRAMMARS_H
#define SRV_GRAMMARS_H

#include "bitnet.h"

typedef struct srv_grammars srv_grammars;
typedef struct srv_grammar srv_grammar; /* one that is in use */

/* At most `most` are kept. NULL: out of memory. Close it before the engine; nobody may use it. */
srv_grammars *srv_grammars_open(size_t most);
void srv_grammars_close(srv_grammars *g);
/* Any thread; the engine is always the same. g NULL: nothing is kept. Fails as bitnet_grammar_open.
 */
bitnet_status srv_grammars_use(srv_grammars *g, bitnet_engine *engine, bitnet_grammar_kind kind,
                               const char *text, size_t n_text, srv_grammar **out,
                               bitnet_error *err);
bitnet_grammar *srv_grammar_of(const srv_grammar *used);
void srv_grammars_release(srv_grammars *g, srv_grammar *used); /* NULL: nothing */

#endif
