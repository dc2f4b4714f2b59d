/* emulated_modules.h - what the files of the emulated libcuda share. */
#ifndef BNET_EMULATED_MODULES_H
#define BNET_EMULATED_MODULES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    BAD_DEVICE = 101,
    NO_PEER = 217,
    INVALID_PTX = 218,
    BAD_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    PEER_ALREADY = 704,
    PEER_NOT_ENABLED = 705,
    CAPTURE_UNJOINED = 904
};

/* A kernel: the function that stands for it, and the sizes of its parameters where the module is
 * text that says so; -1: one struct, as all kernels of this project have it. */
typedef struct emulated_function {
    char name[64];
    void *fn;
    int n_params, sizes[16];
    const char
        *options; /* of the emulated compiler, whose product the module is; NULL: it is not */
    struct emulated_function *next;
} emulated_function;

/* What the emulated compiler gives out: this, then its options, each behind a space. */
#define EMULATED_CODE "emulated cubin"

/* emulated_user.c. An image is PTX if it is text that begins with a directive or a comment; then it
 * must have a version, a target and an entry. NULL: it has not. */
void *bnet_emulated_module(const void *image);
void bnet_emulated_module_free(void *module);
/* NULL: a module of text has no such entry. */
emulated_function *bnet_emulated_function(void *module, const char *name, void *fn);
/* False: the arguments are not those the kernel was compiled for. */
int bnet_emulated_fits(const emulated_function *f, const void *args);
void bnet_emulated_params(const emulated_function *f, void **params, uint8_t *to);

int bnet_emulated_fault(const char *name); /* does this call fail, and with what? */

/* emulated_devices.c */
int bnet_emulated_devices(void);
int bnet_emulated_current(void); /* of this thread; -1: none */
size_t bnet_emulated_memory(int device);
size_t bnet_emulated_used(void); /* of the one that is current */
void *bnet_emulated_context(int device);
bool bnet_emulated_note(uint64_t p, size_t n); /* false: the device has not that much left */
bool bnet_emulated_forget(uint64_t p);
int bnet_emulated_device_of(uint64_t p); /* -1: nobody's */
/* May one context's memory be filled from the other's? */
int bnet_emulated_may_fetch(void *to, uint64_t dst, void *from, uint64_t src);

#endif
