/* foreign.h - what a file is that was given as a model and is no GGUF file. */
#ifndef BNET_FOREIGN_H
#define BNET_FOREIGN_H

#include "base/base.h"

/* Writes "a git-lfs pointer, ...: run git lfs pull" into buf: what the bytes are by name, and what
 * to do. False: the bytes are not recognised. Reads only the n bytes. */
bool bnet_foreign_tell(const uint8_t *data, size_t n, char *buf, size_t cap);
/* The same for a folder: a checkpoint to convert, or a folder that holds a GGUF file. */
bool bnet_foreign_folder(const char *path, char *buf, size_t cap);

#endif
