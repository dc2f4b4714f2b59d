/* models.h - the models that this server offers: which are loaded, loading, or only known by name.
 * Loads on demand within a budget of memory and unloads the one that nobody has used for longest.
 */
#ifndef SRV_MODELS_H
#define SRV_MODELS_H

#include <string.h>

#include "bitnet.h"
#include "jobs/scheduler.h"

typedef struct srv_models srv_models;

typedef enum srv_model_state { SRV_UNLOADED, SRV_LOADING, SRV_LOADED, SRV_BROKEN } srv_model_state;

/* A loaded model that is in use: it stays until it is released. */
typedef struct srv_model {
    const char *name; /* as requests name it */
    bitnet_engine *engine;
    const bitnet_model_info *info;
    srv_scheduler *scheduler;
    struct srv_grammars *grammars; /* compiled ones (grammars.h); NULL: none are kept */
    const char *device, *summary;  /* of its runtime */
    int n_ctx;
    int64_t created; /* the file's time, seconds since 1970 */
} srv_model;

typedef struct srv_models_options {
    const char *const *paths; /* GGUF files, or folders whose GGUF files are offered */
    size_t n_paths;
    const char *const
        *load_dirs; /* folders from which requests may load more; none: they may not */
    size_t n_load_dirs;
    uint64_t
        budget_bytes; /* of loaded models and their caches; 0: three quarters of what is free */
    int max_loaded;   /* 0: 3 */
    bool any_name;    /* where one model is offered, it answers to every name */
    /* Texts in these outlive the models. A struct_size of 0 stands for all defaults */
    bitnet_runtime_options runtime;
    bitnet_engine_options engine;
    srv_scheduler_options scheduler;
    void (*on_loaded)(void *user, double seconds); /* a model was loaded; any thread, under the
                                                      lock: it calls no models; NULL: nobody */
    void *on_loaded_user;
} srv_models_options;

/* Looks the files up; loads the first one unless `lazy`. A folder's files are offered in the order
 * of their names; folders in it are not looked into. A name that is taken gets a number. Fails: IO
 * (no such file, a folder without GGUF files), ARGUMENT (none is given, too many), and as
 * bitnet_runtime_open and bitnet_engine_open do, naming the file. */
bitnet_status srv_models_open(const srv_models_options *options, bool lazy, srv_models **out,
                              bitnet_error *err);
void srv_models_close(srv_models *m);
void srv_models_drain(srv_models *m);

/* The model of this name (NULL or "": the first), loaded if need be; waits for that, and asks
 * `cancel` meanwhile. A name is a file's name without .gguf, with or without ":latest"; the first
 * model also answers to names that are not known when there is only one and `any_name` is set.
 * Fails: NOT_AVAILABLE (no such model, or it never fits into the budget), what loading fails with,
 * CANCELLED, AGAIN (it does not fit beside models in use). */
bitnet_status srv_model_use(srv_models *m, const char *name, bitnet_cancel_fn cancel, void *user,
                            srv_model **out, bitnet_error *err);
void srv_model_release(srv_models *m, srv_model *model);
/* The model of this very name, if it is loaded; else NULL. For figures (/metrics, /slots,
 * /v1/stats): it never waits, and is no use; whoever unloads the model waits for _looked. */
srv_model *srv_model_peek(srv_models *m, const char *name);
void srv_model_looked(srv_models *m, srv_model *model);

/* Adds a file from an allowed folder under a name (NULL or "": the file's) and loads it. The path
 * is absolute, or begins in one of the folders; where links in it lead is what counts. Fails:
 * ARGUMENT (outside the folders, no file there, name taken, too many), and as _use does, which also
 * says what `cancel` is for; then it is not offered, unless another caller waits for it. */
bitnet_status srv_models_add(srv_models *m, const char *path, const char *name,
                             bitnet_cancel_fn cancel, void *user, bitnet_error *err);
/* Unloads and forgets (one given at start is only unloaded). Fails: NOT_AVAILABLE, AGAIN (in use,
 * or being loaded). */
bitnet_status srv_models_remove(srv_models *m, const char *name, bitnet_error *err);
/* Unloads alone: it stays offered and is loaded again when it is asked for. Fails: as _remove. */
bitnet_status srv_models_rest(srv_models *m, const char *name, bitnet_error *err);

enum { SRV_MODEL_NAME_MAX = 288, SRV_MODEL_PATH_MAX = 4096 };

/* One line about a model, also an unloaded one, as it was when it was asked for. */
typedef struct srv_model_row {
    char name[SRV_MODEL_NAME_MAX], path[SRV_MODEL_PATH_MAX];
    srv_model_state state;
    double progress; /* 0..1 while loading */
    int64_t created;
    uint64_t n_bytes; /* of the file */
    /* BROKEN: what loading said; it is tried again half a minute later. Else "". */
    char why[BITNET_MESSAGE_MAX];
} srv_model_row;
/* Whether a model is meant by what it is called: its name, or that with the tag ":latest", which
 * Ollama's clients put behind each. */
static inline bool srv_model_is_called(const char *name, const char *called)
{
    size_t n = strlen(name);
    return strncmp(name, called, n) == 0 && (!called[n] || strcmp(called + n, ":latest") == 0);
}
/* The i-th in the order they were given; false past the end. Any thread. */
bool srv_models_at(srv_models *m, size_t i, srv_model_row *out);

#endif
