/* loader.c - drivers as dynamic libraries: one binary runs on machines with and without each. */
#include "device/probe.h"

#include <dlfcn.h>
#include <stdio.h>

/* RTLD_NODELETE: drivers start threads and register exit handlers, so they must stay mapped; the
 * reference is given back all the same. */
static void *dl_open(void *user, const char *name)
{
    (void)user;
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static bnet_fn dl_sym(void *user, void *lib, const char *name)
{
    (void)user;
    void *p = dlsym(lib, name);
    bnet_fn fn;
    static_assert(sizeof fn == sizeof p, "POSIX: a function pointer fits an object pointer");
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

static void dl_close(void *user, void *lib)
{
    (void)user;
    dlclose(lib);
}

const bnet_loader bnet_dl = {dl_open, dl_sym, dl_close, NULL};

static bool resolve(bnet_library *lib, const char *name, const char *const *wanted, char *reason,
                    size_t cap)
{
    for (size_t i = 0; wanted[i]; i++) {
        assert(i < BNET_COUNT(lib->fn));
        lib->fn[i] = lib->loader->sym(lib->loader->user, lib->handle, wanted[i]);
        if (lib->fn[i])
            continue;
        snprintf(reason, cap, "%s has no function %s: too old or not the vendor's", name,
                 wanted[i]);
        return false;
    }
    return true;
}

bool bnet_library_open(const bnet_loader *l, const char *const *names, const char *const *wanted,
                       bnet_library *out, char *reason, size_t cap)
{
    for (size_t i = 0; names[i]; i++) {
        bnet_library lib = {.loader = l, .handle = l->open(l->user, names[i])};
        if (!lib.handle)
            continue;
        if (!resolve(&lib, names[i], wanted, reason, cap)) {
            bnet_library_close(&lib);
            return false;
        }
        *out = lib;
        return true;
    }
    snprintf(reason, cap, "the library %s is not installed", names[0]);
    return false;
}

void bnet_library_close(bnet_library *lib)
{
    lib->loader->close(lib->loader->user, lib->handle);
    lib->handle = NULL;
}

void bnet_library_ask(const bnet_world *w, const char *const *names, const char *const *wanted,
                      bnet_ask_fn ask, bnet_device_status *s)
{
    bnet_library lib;
    if (bnet_library_open(w->loader, names, wanted, &lib, s->reason, sizeof s->reason)) {
        ask(&lib, s);
        bnet_library_close(&lib);
    }
    s->available = s->runnable = s->n_gpus > 0;
    if (s->available)
        snprintf(s->source, sizeof s->source, "driver");
}
