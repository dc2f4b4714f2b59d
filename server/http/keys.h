/* keys.h - who may call: API keys, compared in a time that does not depend on them. */
#ifndef SRV_KEYS_H
#define SRV_KEYS_H

#include <stddef.h>

#include "config.h"

/* The number of the key, from 1; 0: no key is like this. */
size_t srv_key_find(const srv_config *config, const char *given, size_t n_given);
/* The key in "Authorization: Bearer KEY"; NULL: there is none. */
const char *srv_key_bearer(const char *authorization);

#endif
