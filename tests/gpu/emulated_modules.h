/* emulated_modules.h - what the files of the emulated libcuda share. */
#ifndef BNET_EMULATED_MODULES_H
#define BNET_EMULATED_MODULES_H

#include <stdint.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    BAD_DEVICE = 101,
    INVALID_PTX = 218,
    NOT_FOUND = 500,
    NOT_READY = 600
};

/* A kernel: the function that stands for it, and the sizes of its parameters where the module is
 * text that says so; -1: one struct, as all kernels of this project have it. */
typedef struct emulated_function {
    char name[64];
    void *fn;
    int n_params, sizes[16];
    struct emulated_function *next;
} emulated_function;

/* emulated_user.c. An image is PTX if it is text that begins with a directive or a comment; then it
 * must have a version, a target and an entry. NULL: it has not. */
void *bnet_emulated_module(const void *image);
void bnet_emulated_module_free(void *module);
/* NULL: a module of text has no such entry. */
emulated_function *bnet_emulated_function(void *module, const char *name, void *fn);
void bnet_emulated_params(const emulated_function *f, void **params, uint8_t *to);

#endif
