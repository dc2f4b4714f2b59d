/* use_model.c - finds a model by its name for handlers that are no asks. */
#include "ask/use_model.h"

#include <string.h>

#include "server.h"

bool srv_use_model(srv_exchange *x, const char *name, srv_model **out)
{
    bitnet_error err = {BITNET_OK, ""};
    if (srv_model_use(srv_server_of(x)->models, name, srv_gone_fn, x, out, &err) == BITNET_OK)
        return true;
    srv_fail_with(x, &err);
    return false;
}

bool srv_may_change_models(srv_exchange *x)
{
    if (srv_server_of(x)->config->models.n_load_dirs)
        return true;
    srv_fail(x, 403, "loading_not_allowed", NULL,
             "models are fixed here: the server was started without --model-dir, which names "
             "folders to load from");
    return false;
}

bool srv_find_row(srv_exchange *x, const char *name, srv_model_row *out)
{
    for (int tagged = 0; tagged < 2; tagged++) /* its very name comes first */
        for (size_t i = 0; srv_models_at(srv_server_of(x)->models, i, out); i++)
            if (!name || !*name ||
                (tagged ? srv_model_is_called(out->name, name) : strcmp(out->name, name) == 0))
                return true;
    return false;
}
