/* hash.c - the secret keys of hash tables. */
#include "base/hash.h"

#include <sys/random.h>

bnet_hash_key bnet_hash_key_new(void)
{
    bnet_hash_key key;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) == (ssize_t)sizeof key)
        return key;
    double ms = bnet_now_ms();
    memcpy(&key.k0, &ms, sizeof ms);
    key.k1 = (uint64_t)(uintptr_t)&key ^ bnet_rotl64((uint64_t)(uintptr_t)&bnet_hash_key_new, 32);
    return key;
}
