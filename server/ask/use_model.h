/* use_model.h - models for a handler that is no ask. */
#ifndef SRV_USE_MODEL_H
#define SRV_USE_MODEL_H

#include "http/exchange.h"
#include "jobs/models.h"

/* The model of this name (NULL or "": the first), loaded if need be. False: the client has been
 * told (404: there is none). Release it with srv_model_release. */
bool srv_use_model(srv_exchange *x, const char *name, srv_model **out);

/* May requests load and unload models? Not where the person who runs the server has named no folder
 * for that. False: the client has been told (403). */
bool srv_may_change_models(srv_exchange *x);

/* The row of this name (NULL or "": the first), loaded or not. False: there is none. */
bool srv_find_row(srv_exchange *x, const char *name, srv_model_row *out);

#endif
