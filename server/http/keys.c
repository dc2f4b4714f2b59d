/* keys.c - API keys. Every key is compared with all of what was given, so that neither the place of
 * the first differing byte nor the number of the key shows in the time. */
#include "http/keys.h"

#include <string.h>
#include <strings.h>

/* 0 if both are the same. The time depends on n_given alone. */
static unsigned differ(const char *key, const char *given, size_t n_given)
{
    size_t n_key = strlen(key);
    unsigned diff = n_key != n_given;
    for (size_t i = 0; i < n_given; i++) {
        size_t at = i < n_key ? i : 0;
        diff |= (unsigned char)key[at] ^ (unsigned char)given[i];
    }
    return diff;
}

size_t srv_key_find(const srv_config *config, const char *given, size_t n_given)
{
    size_t found = 0;
    for (size_t i = 0; i < config->n_keys; i++) {
        size_t same = differ(config->keys[i], given, n_given) == 0;
        found |= (i + 1) * same; /* keys differ, so at most one adds its number */
    }
    return found;
}

const char *srv_key_bearer(const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return NULL;
    authorization += 7;
    return authorization + strspn(authorization, " ");
}
