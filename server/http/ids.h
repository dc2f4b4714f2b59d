/* ids.h - names that nobody can guess: "chatcmpl-..." and their like. */
#ifndef SRV_IDS_H
#define SRV_IDS_H

#include <stdint.h>

#define SRV_ID_MAX 40

/* Writes the prefix (at most 15 bytes) and 24 random letters and digits. */
void srv_id(char out[SRV_ID_MAX], const char *prefix);
/* A random number; never the same twice but by chance. */
uint64_t srv_random(void);

#endif
