/* models_impl.h - what the files of the models share. Nobody else includes it.
 *
 * All fields are under the lock, but for `progress`, what never changes after opening, and what a
 * thread that has set `busy` does to the model it loads or unloads. */
#ifndef SRV_MODELS_IMPL_H
#define SRV_MODELS_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "jobs/models.h"

enum { SRV_MODELS_MAX = 1024 };

typedef struct srv_entry {
    srv_model model; /* first: a model is its entry */
    char *name, *path;
    bool given; /* at start: it is never forgotten */
    bool gone;  /* forgotten: another file may get its place once nobody uses it or waits for it */
    srv_model_state state;
    atomic_uint progress; /* thousandths */
    int64_t created;
    uint64_t n_bytes;
    uint64_t least; /* with the smallest cache; 0: not known yet */
    char why[BITNET_MESSAGE_MAX];
    bitnet_status why_status;
    double broken_ms;
    int n_users, n_waiting, n_looks;
    double used_ms;
    uint64_t cost; /* bytes, while it is loaded */
} srv_entry;

struct srv_models {
    srv_models_options o;
    char **load_dirs; /* without links; NULL where there is none */
    bitnet_runtime *runtime;
    uint64_t budget;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    srv_entry **entries; /* [n], at most SRV_MODELS_MAX */
    size_t n;
    bool busy; /* a model is being loaded or unloaded */
    bool draining;
    atomic_bool closing;
};

/* ---- models_scan.c ---- */

/* Enters the file or the files of the folder. Fails: IO, ARGUMENT, MEMORY. */
bitnet_status srv_models_scan(srv_models *m, const char *path, bitnet_error *err);
/* An entry for a file that exists, new or one that was forgotten; path and name are copied. Fails:
 * IO, ARGUMENT, MEMORY. */
bitnet_status srv_models_enter(srv_models *m, const char *path, const char *name, srv_entry **out,
                               bitnet_error *err);
/* The file's name without .gguf, to be freed; NULL: no memory. */
char *srv_models_name_of(const char *path);
/* The real path of a file in an allowed folder, to be freed; NULL: it is in none. */
char *srv_models_allowed(const srv_models *m, const char *path);
srv_entry *srv_models_find(const srv_models *m, const char *name);
bool srv_models_same_file(const char *a, const char *b);

/* ---- models_load.c: under the lock, which they give up while they work ---- */

/* Who waits for a load, and may want it no more. */
typedef struct srv_wish {
    bitnet_cancel_fn cancel;
    void *user;
} srv_wish;

/* Loads the entry. Requires: not busy. Fails: as srv_model_use. */
bitnet_status srv_models_load(srv_models *m, srv_entry *e, srv_wish wish, bitnet_error *err);
/* Unloads it. Requires: not busy, nobody uses it. */
void srv_models_unload(srv_models *m, srv_entry *e);

#endif
